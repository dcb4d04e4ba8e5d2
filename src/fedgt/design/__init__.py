"""Who shares a group: assignment matrices, their codes, and how many groups an attack contaminates."""

from fedgt.design.banded import banded
from fedgt.design.codes import bch, cyclic
from fedgt.design.constant_weight import constant_column_weight, constant_row_weight
from fedgt.design.contamination import (
    Contamination,
    all_contaminated,
    contamination,
    countable,
    max_malicious,
    negative_group_counts,
    negative_group_distribution,
)
from fedgt.design.families import candidates
from fedgt.design.matrix import Design, from_matrix, identity, read_design, single_group
from fedgt.design.named import named_design, named_designs, named_families
from fedgt.design.quasi_cyclic import drawn_quasi_cyclic, quasi_cyclic
from fedgt.design.reed_solomon import CodeProof, proved, reed_solomon
from fedgt.design.searched import SearchedDesign, any_design, searched_design, searched_designs
from fedgt.design.shortening import punctured, shortened
from fedgt.design.soundness import faults
from fedgt.design.stages import AnyDesign, StagedDesign, design_of_rows, read_rows

__all__ = [
    "AnyDesign",
    "CodeProof",
    "Contamination",
    "Design",
    "SearchedDesign",
    "StagedDesign",
    "all_contaminated",
    "any_design",
    "banded",
    "bch",
    "candidates",
    "constant_column_weight",
    "constant_row_weight",
    "contamination",
    "countable",
    "cyclic",
    "design_of_rows",
    "drawn_quasi_cyclic",
    "faults",
    "from_matrix",
    "identity",
    "max_malicious",
    "named_design",
    "named_designs",
    "named_families",
    "negative_group_counts",
    "negative_group_distribution",
    "proved",
    "punctured",
    "quasi_cyclic",
    "read_design",
    "read_rows",
    "reed_solomon",
    "searched_design",
    "searched_designs",
    "shortened",
    "single_group",
]
