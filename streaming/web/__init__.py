"""The web page and its API: reads the alert store and the state store, writes acknowledgements."""
