"""MNIST on Flower with fedgt."""
