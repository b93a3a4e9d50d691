"""What a program makes: ``KeyShared`` around a handler, ``split`` around a consumer."""
