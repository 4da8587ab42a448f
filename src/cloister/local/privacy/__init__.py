"""How private reports are: certificates, advice, the shuffle model."""
