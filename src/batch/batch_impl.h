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

  // The thread's work, until the batch ends.
  void run();
  void work();
  // Waits while there is nothing to do, then takes what came in. Returns false at the end.
  bool receive();
  // Waits for news. Meanwhile the engine gives back what it keeps for the next step, and prefixes that rest are saved.
  void rest();

  const std::shared_ptr<Engine> engine;
  const BatchOptions options;
  RequestInbox inbox;
  Scheduler scheduler;
  DecodeSteps steps;
  std::thread thread;  // last: it uses all of the above
};

}  // namespace winnow
