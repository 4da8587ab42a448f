"""Corrected textbook methods, for teaching only; not for deployment."""
