#include "eviction/refit/matrix_product.h"

#include <oneapi/dnnl/dnnl.h>

#include "base/one_openmp_thread.h"
#include "winnow/error.h"

namespace winnow {

void multiply(int m, int n, int k, float alpha, const Operand& a, const Operand& b, float beta, float* c, int stride) {
  if (m == 0 || n == 0) return;
  const OneOpenMpThread one_thread;
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                                          a.stride, b.data, b.stride, beta, c, stride);
  if (status != dnnl_success) throw Error(ErrorCode::kInternal, "oneDNN could not multiply two matrices");
}

}  // namespace winnow
