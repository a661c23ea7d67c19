"""The state of every partition as people look at it: written by the driver, read by the page."""
