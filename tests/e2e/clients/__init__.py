"""The example as the tests of the official clients serve it: with a tool that asks, and keys in ``_meta`` too."""
