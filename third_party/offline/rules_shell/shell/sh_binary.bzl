"""Bazel has sh_binary built in."""

sh_binary = native.sh_binary
