// Chunked prefill: contexts and prompts are read in slices, in turn, between steps of decoding.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <variant>

#include "batch/job.h"
#include "batch/prefix_tree.h"

namespace winnow {

// A prefill's owner has what it reads: a pending prefix's context, or a job's own part. It is never null.
using PrefillOwner = std::variant<PrefixPointer, BatchJob*>;

// A prefill under way.
struct ScheduledPrefill {
  PrefillOwner owner;
  Prefill prefill;
  std::int32_t n_tokens = 0;
  BatchClock::time_point started = BatchClock::now(), reported = started;
};

// A listener that is called after each slice and at the end of a prefill.
class PrefillListener {
 public:
  virtual ~PrefillListener() = default;
  // Called after a slice that is not the last.
  virtual void note_slice(ScheduledPrefill& prefill) = 0;
  // Called after the last slice, when the prefill is gone. Errors that they throw are passed to fail_part.
  virtual void finish_part(const PrefixPointer& context) = 0;
  virtual void finish_part(BatchJob* job) = 0;
  virtual void fail_part(const PrefixPointer& context, ErrorCode code, const std::string& message) = 0;
  virtual void fail_part(BatchJob* job, ErrorCode code, const std::string& message) = 0;
};

// The prefills under way, which take turns. Only the batch's thread calls it.
class PrefillSlices {
 public:
  // Counts its slices, tokens and seconds in `totals`.
  PrefillSlices(Engine& engine, PrefillListener& listener, BatchStatistics& totals)
      : engine_(engine), listener_(listener), totals_(totals) {}

  // Schedules the next part of a sequence, up to its snapshot or its end. Returns false if it has been read already.
  bool start_part(BatchJob& job);
  void start_part(const PrefixPointer& context);
  // Cancels the prefill of a job or of a pending prefix.
  void stop(const PrefillOwner& owner);

  bool empty() const { return prefills_.empty(); }
  // Computes slices for this many seconds, and at least one. Must not be called if empty().
  void run(double seconds);

 private:
  bool run_slice(ScheduledPrefill& scheduled);

  Engine& engine_;
  PrefillListener& listener_;
  BatchStatistics& totals_;
  std::list<ScheduledPrefill> prefills_;  // the first one gets the next slice
  double turn_s_ = 0;                     // seconds of the first one's present turn
};

}  // namespace winnow
