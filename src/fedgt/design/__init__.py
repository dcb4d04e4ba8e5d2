"""Who shares a group: assignment matrices, their codes, and how many groups an attack contaminates."""

from fedgt.design.codes import bch, cyclic
from fedgt.design.contamination import (
    all_contaminated,
    countable,
    max_malicious,
    negative_group_counts,
    negative_group_distribution,
)
from fedgt.design.matrix import Design, from_matrix, identity, read_design, single_group
from fedgt.design.named import named_design, named_designs

__all__ = [
    "Design",
    "all_contaminated",
    "bch",
    "countable",
    "cyclic",
    "from_matrix",
    "identity",
    "max_malicious",
    "named_design",
    "named_designs",
    "negative_group_counts",
    "negative_group_distribution",
    "read_design",
    "single_group",
]
