"""Views of instances from outside: HTTP, diagnosis, doctor and audit."""
