"""What a status shows to be wrong: every cause there is, and the one function that finds them."""
