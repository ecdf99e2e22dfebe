// An engine computes; a session is one sequence: its tokens, its ragged KV cache, its eviction policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "winnow/api.h"
#include "winnow/entry_type.h"
#include "winnow/error.h"
#include "winnow/eviction.h"
#include "winnow/model.h"
#include "winnow/pipeline.h"

namespace WINNOW_API winnow {

// From how many tokens on PrefillWeights::kAuto converts a layer's weights for a prompt or a turn: those of types that
// winnow does not multiply as they are, and the others.
inline constexpr std::int32_t kMinConvertedTokens = 40;
inline constexpr std::int32_t kMinConvertedInt8Tokens = 1024;

// The number format in which a prompt is multiplied with the weights.
enum class PrefillWeights {
  kAuto,   // int8 products; with AMX bf16 from kMinConvertedInt8Tokens tokens on; nothing is converted for fewer than
           // kMinConvertedTokens
  kAsIs,   // on the file's types; beside quantised weights activations are rounded to 8 bits
  kFloat,  // as kBf16 where the processor multiplies bf16, else as kF32: nothing is rounded to 8 bits
  kBf16,
  kF32,
  kInt8,  // as kAsIs for types that winnow multiplies itself (q4_0 to q8_0, q2_K to q6_K, iq4_nl, iq4_xs, mxfp4);
          // others are converted to bf16 where the processor multiplies bf16 and the file's weights are not f32, else
          // to f32
};

// "auto", "as-is", "int8", "float", "bf16", "f32". Throws Error(kInvalidArgument).
PrefillWeights parse_prefill_weights(std::string_view name);

struct EngineOptions {
  int n_threads = 0;               // 0: the machine's physical cores
  std::size_t kv_bytes_limit = 0;  // hard limit of the page pool with all staging buffers; 0: none
  int n_batch = 512;               // tokens that go through a layer at a time while prefilling
  PrefillWeights prefill_weights = PrefillWeights::kAuto;

  // Of a model over several machines: how this one reaches the others; null: it has all layers. The limits above are of
  // each rank's own part.
  std::shared_ptr<PipelineLink> pipeline = nullptr;
  // The program is rank 0's alone: the others' only call is Engine::follow. The same on all ranks.
  bool is_led = false;
  // [ranks - 1] the first layer of every rank but the first one; empty: ranges of layers of about equal bytes.
  std::vector<int> pipeline_layers = {};
};

struct MemoryStatistics {
  std::size_t kv_bytes_in_use;    // pages, staging, scores and states of recurrent layers now
  std::size_t kv_bytes_peak;      // highest since the last reset_peak, or since a session came to an empty pool
  std::size_t kv_bytes_resident;  // in use + free pages kept for reuse
  std::size_t kv_bytes_limit;     // 0: none
  // Not in the pool and its limit: activations, logits and nodes of the last step's graph, which is for as many
  // sequences as that step had, and of the prefill's.
  std::size_t graph_bytes;
};

// What a rank of a pipeline holds: the layers from the first up to before the last.
struct RankMemory {
  std::int32_t first_layer = 0, last_layer = 0;
  std::uint64_t rss_peak_bytes = 0, kv_bytes_peak = 0;
};

struct SessionOptions {
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  EvictionOptions eviction;      // default: full
  std::optional<Budget> budget;  // needed by every method but full
  std::int32_t n_ctx = 0;        // most tokens of the sequence (logical); 0: the model's trained context

  // A first prompt longer than this goes through all layers in chunks of so many tokens, and the cache is cut after
  // each chunk: its peak is the budget + one chunk, for a prompt of any length. 0: layer by layer, with the whole
  // prompt's keys and values of ONE layer beside the budget, and exact attention over the prompt.
  std::int32_t prefill_chunk = 0;

  // While decoding. kKeep: every new entry stays. kTotal: after every `cut_every` decoded tokens a cut to the prompt's
  // total, scored by the last window queries. kOwn: after every token each head goes back to the number it had after
  // the prompt, scored by the present query alone (CAKE). The step that decodes a token attends before anything is
  // dropped.
  enum class DecodeCut { kKeep, kTotal, kOwn };
  DecodeCut decode_cut = DecodeCut::kKeep;
  std::int32_t cut_every = 1;

  // Sets the types that eviction.bits asks for, as Engine::open does. Throws Error(kInvalidArgument) where they are
  // others than f16 already.
  void choose_types();
  // With the types chosen, what keys or values are stored in, for people: "r4", or "q8_0+r4" where the best entries
  // have more bits.
  std::string stored_key_types() const;
  std::string stored_value_types() const;
};

// What a budget of a loss ("kl=0.02") came to with a session's first prompt.
struct LossPromise {
  double asked = 0;           // nats a token
  Budget taken = {};          // a part of the prompt's bytes in f16; all of them where the prompt is too short to tell
  double expected = 0;        // nats a token that the cut taken was measured to cost
  std::int32_t n_tokens = 0;  // the prompt's last ones, on which cuts were measured; 0: the prompt was kept whole
  struct Trial {
    Budget budget;
    double kl;  // mean over all but the first quarter of the n_tokens, nats
  };
  std::vector<Trial> tried = {};  // from the smallest on, to the one taken
};

// What storing entries as codes costs a session that evicts nothing, measured on its first prompt: the attention of
// rows spread over the prompt on some of its entries, before they are coded and after.
struct CodeLoss {
  double mean_keys = 0;  // KL of attention over keys as they are to attention over stored ones, nats, over all KV heads
  double most_keys = 0;  // of the head that loses most
  int layer = 0;         // that head
  int kv_head = 0;       // likewise
  double most_values = 0;  // squared errors of stored values over the values' squares, weighted by attention: the most
  std::int64_t n_heads = 0;     // that were measured
  std::int64_t n_too_much = 0;  // of these, heads that lose more than a tenth of a nat, or of their values' squares
};

// Seconds and tokens of a session's life so far. In a pipeline bytes are sums over its ranks, and seconds of cuts this
// rank's own.
struct SessionStatistics {
  std::int64_t prompt_tokens = 0;   // through prefill() and append()
  std::int64_t decoded_tokens = 0;  // through decode()
  double prefill_s = 0;             // prefill() and append(), eviction included
  // Scoring, a pass over the prompt for it, allotting, compacting; of what sessions of one prefill share, as much as it
  // costs a session by itself.
  double evict_s = 0;
  double decode_s = 0;
  std::int64_t entries_full = 0;  // what the full cache would hold
  std::int64_t entries_kept = 0;
  std::size_t bytes_full = 0;                   // of entries_full in f16, whatever is stored (no page rounding)
  std::size_t bytes_kept = 0;                   // of entries_kept as they are stored
  std::size_t bytes_in_pages = 0;               // pages held, whole
  std::size_t rank_bytes_in_pages = 0;          // of these, the rank's of a pipeline that holds most
  std::size_t recurrent_bytes = 0;              // states of recurrent layers; forks share them
  std::size_t score_bytes = 0;                  // scores of earlier cuts, beside the pages; forks share them
  std::size_t bytes_peak = 0;                   // the engine's kv_bytes_peak since the session began
  std::size_t hidden_bytes = 0;                 // hidden states of the largest prefill
  std::size_t staging_bytes = 0;                // staging buffer of the largest prefill
  std::vector<std::vector<std::int32_t>> kept;  // [n_layer][n_kv_head] stored entries
  // [n_layer][n_kv_head] whether cuts store the head in more bits than the method's, since these would cost it too
  // much.
  std::vector<std::vector<bool>> raised;
  std::optional<LossPromise> promise = {};  // where the budget is a loss and a prompt was read
  std::optional<CodeLoss> code_loss = {};   // where nothing is evicted and entries are stored as codes
};

// Called while a prompt is prefilled, with work done and to do (layers x tokens). False stops with Error(kCancelled);
// the session is then as before the call.
using ProgressCallback = std::function<bool(std::int64_t done, std::int64_t total)>;

// Receives the logits [n_vocab] after the token at `position`; valid during the call.
using LogitsCallback = std::function<void(std::int32_t position, std::span<const float> logits)>;

// Receives the hidden state [n_embd] of the token at `position` after the last layer and its norm; valid during the
// call.
using HiddenCallback = std::function<void(std::int32_t position, std::span<const float> hidden)>;

struct PrefillOptions {
  ProgressCallback on_progress;
  LogitsCallback on_logits;  // every token's logits instead of only the last one's (slow with large vocabularies)
  // Every token's hidden state. Without on_logits no logits are computed: Session::logits() throws until the session is
  // fed again.
  HiddenCallback on_hidden;
};

// Thrown by Engine::decode and Session::decode where the step went well and a cut that follows it did not. Every
// session of the step has been fed; those named here hold more than their budget until the next cut, all others are as
// after any step.
class CutError : public Error {
 public:
  struct Failure {
    std::size_t session;  // index in the step
    ErrorCode code;
    std::string message;
  };
  explicit CutError(std::vector<Failure> the_failures);  // of one session at least

  const std::vector<Failure> failures;
};

class Session;

// A prompt on its way into sessions, a slice of work at a time: for a program that must do other things in between (a
// server's running answers). Between two steps other sessions of the engine may be fed, also by other prefills; the
// sessions of this one may not. Destroyed before it is done, it leaves them as they were.
//
// Not thread-safe. Must not outlive its sessions.
class Prefill {
 public:
  Prefill(Prefill&&) noexcept;
  Prefill& operator=(Prefill&&) noexcept;
  ~Prefill();

  // Sends up to EngineOptions::n_batch tokens through one layer, or does the work that ends the prefill; in a pipeline
  // of several ranks through the layers of all of them. Returns whether there is more to do. Throws what
  // Session::prefill throws; the sessions are then as before.
  bool step();

  bool done() const;
  std::int64_t work_done() const;   // layers x tokens
  std::int64_t work_total() const;  // likewise

  struct Impl;
  explicit Prefill(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Memory that a request may take, rounded up to whole pages: never less than what it will.
struct MemoryEstimate {
  std::size_t kv_bytes_peak;     // pages, staging, scores and recurrent layers, at the worst moment of a request
  std::size_t kv_bytes_staging;  // of these, the staging buffer while prefilling
  std::size_t hidden_bytes;      // hidden states while prefilling, not in the pool
  std::size_t recurrent_bytes;   // of kv_bytes_peak, the states of recurrent layers
};

// Owns the threads, the compute buffers and the page pool; sessions hold a reference to it. One computation at a time:
// calls of sessions on different threads wait for each other.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  static std::shared_ptr<Engine> create(std::shared_ptr<const Model> model, const EngineOptions& options = {});
  ~Engine();

  // Throws Error(kInvalidArgument) for options that contradict each other or the model.
  Session open(const SessionOptions& options = {});

  // One step for several sequences of this engine at once: tokens[i] is fed to sessions[i] (distinct sessions), each
  // with its own cache and policy. Afterwards sessions[i]->logits() are valid. Throws CutError once all are fed; with
  // any other Error (kInvalidArgument, kContextFull, kOutOfMemory) none is, and all are as before.
  void decode(std::span<Session* const> sessions, std::span<const Token> tokens);

  // Feeds one prompt to several empty sessions of this engine, which may differ in method, budget and codes (but not
  // one have f16 and another f32 or bf16), and cuts each to its own: the forward pass is computed once. Throws what
  // Session::prefill throws, and Error(kInvalidArgument) for several sessions of which one is not empty or prefills in
  // chunks.
  void prefill(std::span<Session* const> sessions, std::span<const Token> tokens, const PrefillOptions& options = {});

  // The same in slices; one session may be in any state, as with Session::prefill. `tokens` are copied. on_logits is
  // called from the last steps, on_progress from every one.
  Prefill start_prefill(std::span<Session* const> sessions, std::span<const Token> tokens,
                        const PrefillOptions& options = {});
  // Session::append in slices.
  Prefill start_append(Session& session, std::span<const Token> tokens, const PrefillOptions& options = {});

  // What a session with these options takes (in a pipeline on the rank that needs most for it, and so the same on all)
  // for a prompt of n_prompt tokens and n_decode more. Throws what open and prefill would throw for them. Changes
  // nothing, and waits for nobody.
  MemoryEstimate estimate(const SessionOptions& options, std::int32_t n_prompt, std::int32_t n_decode) const;

  // A session saved with Session::save. Throws Error(kBadFile) for a corrupt file or one of another model.
  Session load_session(const std::string& path);

  // With EngineOptions::is_led, of every rank but the first: makes the calls that rank 0 makes of its engine and its
  // sessions, as they come, until that engine is gone. Throws PipelineError where a rank has failed.
  void follow();

  const std::shared_ptr<const Model>& model() const;
  int n_threads() const;
  // The layers that it holds, from the first up to before the last: all but in a pipeline.
  std::pair<int, int> layers() const;
  MemoryStatistics memory() const;  // in a pipeline of this rank
  // Of every rank; without a pipeline of this process. All ranks make this call.
  std::vector<RankMemory> memory_of_ranks() const;
  void reset_peak();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Not thread-safe; different sessions may be used from different threads.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Feeds a prompt and cuts the cache to the budget: layer by layer when the session is empty, else as a later turn
  // (append, then a cut when over the total). Throws Error(kInvalidArgument) for an empty prompt or a token outside the
  // vocabulary, kContextFull, kOutOfMemory: the session is then as before. (Where the cut of a later turn runs out of
  // memory the turn is fed and kept.)
  void prefill(std::span<const Token> tokens, const PrefillOptions& options = {});

  // Feeds tokens after what is there, all of them kept: the question after a compressed context.
  void append(std::span<const Token> tokens, const PrefillOptions& options = {});

  // Feeds one token. Throws what Engine::decode throws.
  void decode(Token token);

  // Logits [n_vocab] after the last token fed; valid until the session is fed again. Throws if nothing was fed yet.
  std::span<const float> logits() const;

  // An independent sequence with the same state; pages are shared until one of the two writes.
  Session fork() const;

  // The greatest length up to n_tokens that truncate() can bring the sequence back to: n_tokens itself where the cache
  // is full and whole, a little less where entries are coded page by page, 0 where there is no way back because what
  // went before is gone (a method that evicts, recurrent layers, a window that has moved on).
  std::int32_t truncatable(std::int32_t n_tokens) const;

  // Forgets all tokens but the first n_tokens, as if the others had never been fed; logits() then throws until the
  // session is fed again. Throws Error(kInvalidArgument) unless n_tokens is n_tokens() or truncatable() says so.
  void truncate(std::int32_t n_tokens);

  // Writes a checksummed file, first under a temporary name: a killed save loses nothing. Throws Error(kIo).
  void save(const std::string& path) const;

  void clear();

  std::int32_t n_tokens() const;          // logical length: the next position
  std::span<const Token> tokens() const;  // every token fed
  SessionStatistics statistics() const;
  // The positions of the entries that a head holds, ascending. Throws Error(kInvalidArgument) for a head that is not
  // there.
  std::vector<std::int32_t> positions(int layer, int kv_head) const;
  const SessionOptions& options() const;
  const std::shared_ptr<const Model>& model() const;

  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
