"""Tables. For now: a made-up hospital for the demo and the tests."""
