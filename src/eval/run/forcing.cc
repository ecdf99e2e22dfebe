// Fidelity and perplexity: a running text is cut, and its true continuation is forced through what is left.
#include <algorithm>

#include "eval/run/runner_impl.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kContinuationTokens = 64;

}  // namespace

bool Runner::Impl::reference_shares_pass() const {
  return reference_type(options.key_type) == options.key_type &&
         reference_type(options.value_type) == options.value_type;
}

void Runner::Impl::force_item(const WorkItem& item) {
  const auto fail_everywhere = [&](const std::string& reason) {
    for (std::size_t cell = 0; cell < options.cells.size(); ++cell) put_failure(item, 0, cell, reason);
  };
  std::vector<Pass> passes;
  std::vector<Token> continuation;
  std::size_t n_feed = 0;
  guarded(
      [&] {
        PromptBuilder::Continued continued = prompts.continued(item.sample);
        continuation = std::move(continued.continuation);
        const int wanted = item.sample.turns[0].max_new;
        n_feed = std::min(wanted > 0 ? static_cast<std::size_t>(wanted) : kContinuationTokens, continuation.size());
        const std::size_t n_all = continued.text.size() + n_feed;
        if (n_all > static_cast<std::size_t>(options.n_ctx)) {
          throw Error(ErrorCode::kContextFull, "text and continuation have " + std::to_string(n_all) +
                                                   " tokens and the context " + std::to_string(options.n_ctx));
        }
        passes.push_back(
            {.item = &item, .turns = {0}, .prompt = {std::move(continued.text), false}, .n_after = n_feed});
      },
      fail_everywhere);
  if (passes.empty()) return;
  ReferencePredictions reference;
  ContinuationResult full;
  const bool compares = item.protocol == Protocol::kFidelity;
  std::size_t beside = 0;
  bool can_compare = true;
  guarded(
      [&] {
        if (!compares) return;
        const std::vector<Token>& prompt = passes[0].prompt.tokens;
        const MemoryEstimate estimate = engine->estimate(reference_options(), static_cast<std::int32_t>(prompt.size()),
                                                         static_cast<std::int32_t>(n_feed));
        if (reference_shares_pass()) {
          beside = estimate.kv_bytes_peak - estimate.kv_bytes_staging;
          return;
        }
        check_memory("the full cache to compare with", estimate.kv_bytes_peak + estimate.hidden_bytes);
        Session session = engine->open(reference_options());
        PrefillOptions prefill_options;
        prefill_options.on_progress = stop_callback();
        session.prefill(prompt, prefill_options);
        full = force_continuation(session, continuation, n_feed, nullptr, &reference, stop_callback());
      },
      [&](const std::string& reason) {
        can_compare = false;
        fail_everywhere(reason);
      });
  if (!can_compare) return;
  for (std::vector<Job>& group : make_groups(passes, beside)) {
    // The full cache goes through the first pass with the others, and is gone before the next.
    std::optional<Session> full_session;
    if (compares && reference.rows.empty()) full_session.emplace(engine->open(reference_options()));
    prefill(group, full_session ? &*full_session : nullptr);
    if (full_session && full_session->n_tokens() > 0) {
      guarded(
          [&] { full = force_continuation(*full_session, continuation, n_feed, nullptr, &reference, stop_callback()); },
          [&](const std::string& reason) {
            reference.rows.clear();
            for (const Job& job : group) put_failure(item, 0, job.cell, reason);
            group.clear();
          });
      full_session.reset();
    }
    for (Job& job : group) {
      guarded(
          [&] {
            const SessionStatistics before = job.session->statistics();
            const ContinuationResult result = force_continuation(
                *job.session, continuation, n_feed, compares ? &reference : nullptr, nullptr, stop_callback());
            Answer answer = answer_of(job, 0, group.size());
            answer.nll = result.nll;
            answer.nll_tokens = result.nll_tokens;
            answer.decode_s = job.session->statistics().prefill_s - before.prefill_s;
            if (compares) answer.fidelity = Fidelity{*result.kl, *result.top1, full.nll};
            job.session.reset();
            put(answer);
          },
          [&](const std::string& reason) { put_failure(item, 0, job.cell, reason); });
    }
  }
}

}  // namespace winnow::eval
