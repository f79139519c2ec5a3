"""What caused the geometry: next-token prediction on sparse data, from counts to a certified prediction."""
