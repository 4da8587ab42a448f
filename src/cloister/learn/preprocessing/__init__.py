"""Scalers, encoders and quantile transforms."""
