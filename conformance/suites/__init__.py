"""The suites: each module makes cases."""
