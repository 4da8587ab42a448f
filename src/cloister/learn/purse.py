"""What a fit may spend; the floor below has it, since synthesis needs it too."""

from cloister.privacy.purse import Purse, purse

__all__ = ["Purse", "purse"]
