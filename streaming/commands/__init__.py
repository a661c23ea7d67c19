"""The commands of `tidestaff`: one module each, imported only when its command is called."""
