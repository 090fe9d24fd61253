"""Find the mistakes of one operator's declaration and cases. Pure: values in, mistakes out."""

from opmatrix.declaration.validation.cases import cases
from opmatrix.declaration.validation.fields import Mistake, structure
from opmatrix.declaration.validation.operator import NAME, NAMES, RESERVED, declaration, handwritten_files

__all__ = ["NAME", "NAMES", "RESERVED", "Mistake", "cases", "declaration", "handwritten_files", "structure"]
