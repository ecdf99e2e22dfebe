// A library needs a source: this one has the headers that cmake/testing.cmake precompiles for all tests.
