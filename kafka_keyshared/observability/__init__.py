"""What is seen of instances from outside: HTTP, diagnosis, doctor and audit."""
