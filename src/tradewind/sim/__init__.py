"""The grid in virtual time: discrete events drive the live decision code, the engine model and a model of the WAN."""
