"""The paper's experiments: its settings and printed values, sweeps over seeds, and its tables and curves beside ours."""
