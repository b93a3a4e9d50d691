"""How a handler is called and what comes of it: serdes, verdicts, failures described."""
