"""What meets PyTorch: reading data loaders. Importing this room does not import torch itself."""

from lastiterate.torch.loader import describe_loader

__all__ = ["describe_loader"]
