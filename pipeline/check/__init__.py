"""Find the mistakes of one operator's declaration and cases. Pure: values in, mistakes out."""

from pipeline.check.cases import cases
from pipeline.check.declaration import RESERVED, declaration, written
from pipeline.check.mistake import Mistake
from pipeline.check.structure import structure, warm_up

__all__ = ["RESERVED", "Mistake", "cases", "declaration", "structure", "warm_up", "written"]
