"""What training learns when calls are lost: advantages, what a dump shows of them, and a toy that
learns."""
