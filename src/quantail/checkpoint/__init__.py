"""Agents on disk: one zip of safetensors and JSON, checksummed, written whole or not at all.

Three rooms: :mod:`~quantail.checkpoint.archive` is the file and what can be wrong with it,
:mod:`~quantail.checkpoint.values` turns values into JSON and tensors and back, and
:mod:`~quantail.checkpoint.classes` decides which classes a file may name. Reading a file never runs
anything that came with it: there is no pickle, and only classes of known packages are looked up.
"""
