// The parts of winnow::Batch, and the thread that runs them.
#pragma once

#include <memory>
#include <thread>

#include "batch/decode_steps.h"
#include "batch/request_inbox.h"
#include "batch/scheduler.h"
#include "winnow/batch.h"

namespace winnow {

struct Batch::Impl {
  Impl(std::shared_ptr<Engine> the_engine, const BatchOptions& the_options);

  // The thread's main function. Calls work(), and fails all requests if a rank of the pipeline has failed.
  void run();
  // Takes turns of admission, decoding and prefill until the batch ends, then cancels the remaining requests.
  void work();
  // Waits while the batch is idle, then takes what has arrived. Returns false once the batch is to end.
  bool receive();
  // Waits for news. Meanwhile prefixes that are due are saved, and the engine frees the memory kept for its next step.
  void rest();

  const std::shared_ptr<Engine> engine;
  const BatchOptions options;
  RequestInbox inbox;
  Scheduler scheduler;
  DecodeSteps steps;
  std::thread thread;  // last: it uses all of the above
};

}  // namespace winnow
