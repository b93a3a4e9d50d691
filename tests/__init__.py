"""The test suites, one folder per kind; a package only so that pytest finds its plug-ins here."""
