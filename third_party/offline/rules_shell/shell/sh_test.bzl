"""Bazel has sh_test built in."""

sh_test = native.sh_test
