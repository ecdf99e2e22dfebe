// Products of float32 matrices, by oneDNN, on the calling thread.
#pragma once

namespace winnow {

// A row-major matrix as it lies, `stride` floats from row to row, and whether its transpose is meant.
struct Operand {
  const float* data;
  int stride;
  bool transposed = false;
};

// c [m][n] = alpha a b + beta c, for a: [m][k], b: [k][n]. Throws Error(kInternal) where oneDNN fails.
void multiply(int m, int n, int k, float alpha, const Operand& a, const Operand& b, float beta, float* c, int stride);

}  // namespace winnow
