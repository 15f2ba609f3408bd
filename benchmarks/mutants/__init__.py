"""Small mistakes in the product, and which tests find them."""
