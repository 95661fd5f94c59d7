"""The networks of an experiment: many LeNet-5 trained by SGLD at once, and their kernels."""
