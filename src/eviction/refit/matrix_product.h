// Products of float32 matrices by oneDNN, on the calling thread.
#pragma once

namespace winnow {

// A view of a row-major matrix, or of its transpose.
struct Operand {
  const float* data;
  int stride;               // floats from row to row, as they lie in memory
  bool transposed = false;  // true: the operand is the transpose
};

// Computes c [m][n] = alpha a b + beta c for a [m][k] and b [k][n]. Throws Error(kInternal) if oneDNN fails.
void multiply(int m, int n, int k, float alpha, const Operand& a, const Operand& b, float beta, float* c, int stride);

}  // namespace winnow
