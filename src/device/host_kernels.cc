#include "device/host_kernels.h"

#include "winnow/error.h"

// The kernels are being written; what is not there yet says so.
#if __has_include("device/kernels/step_attention-inl.h")
#include "device/kernels/step_attention-inl.h"
#define WINNOW_HAS_STEP_KERNELS 1
#endif

namespace winnow::device {
namespace {

[[noreturn]] void missing() { throw Error(ErrorCode::kUnsupported, "this kernel is not written yet"); }

}  // namespace

void run_on_host(const StoreRows&) { missing(); }
void run_on_host(const CausalAttention&) { missing(); }
#ifdef WINNOW_HAS_STEP_KERNELS
void run_on_host(const StepAttention& plan) {
  simt::Queue queue;
  queue_step_attention(queue, plan);
}
#else
void run_on_host(const StepAttention&) { missing(); }
#endif
void run_on_host(const WindowStatistics&) { missing(); }
void run_on_host(const RowNorms&) { missing(); }

}  // namespace winnow::device
