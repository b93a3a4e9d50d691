"""A year of flights, in order for every aircraft: the handler, for `keyshared run`.

    keyshared run examples/flights/app.py:Flights --config examples/flights/keyshared.toml

The class itself is 40 lines in `kafka_keyshared/lab/demo/flights.py`; read that file to learn how
to write one. It lives inside the package because `keyshared demo` runs the very same class from an
installed wheel, where this folder does not exist, and two copies would drift apart.

The whole interface is: a constructor without arguments, `handle(record)`, and `close()`. To do
something of your own with each flight, extend it here:

    class Late(Flights):
        def handle(self, record: Record) -> None:
            super().handle(record)
            ...
"""

from kafka_keyshared.lab.demo.flights import CancelledFlight, Flights

__all__ = ["CancelledFlight", "Flights"]
