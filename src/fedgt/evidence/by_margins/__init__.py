"""Evidence from the margins of the server's validation set: for clients that differ by nature, and as a second opinion."""
