# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What Doxygen reads of a header (INPUT_FILTER). Three things differ from the file; lines keep their numbers.
#   1. The licence line becomes @file, so that the comment below it is the file's.
#   2. The type or concept that a header is named for, or that its first line begins with in backquotes, is described by
#      the header, if it has no comment of its own.
#   3. What a concept asks for is described by the concept: a declaration without a comment gets one that says which.
#      Members that are described by their type get its first sentence.

function rule(folders, pattern, text) {
  rules += 1
  rule_folders[rules] = "^(" folders ")$"
  rule_pattern[rules] = pattern
  rule_text[rules] = text
}

BEGIN {
  any = "[a-z]+"
  type_or_namespace = "^ *(template <.*> *)?(requires.* )?(inline )?(struct|class|union|enum|namespace)"
  values = "quantize|reduce|merge|select|project|program"
  # Members of programs that say what the first sentence of their type says.
  typed = "offload_extents|offloaded_memory|offload_step|cache_sequences|cache_source|rotary_embedding|" \
          "cache_page_format|weight_encoding|weight_decoding|parameter_stream|weight_stream_spec|loss_token_list|" \
          "loss_part_range|loss_mark_reader|loss_token_outputs|logit_scaling|smoothed_heads|attention_writer|" \
          "key_band|attention_schedule|gradient_thresholds|loss_product_schedule"
  rule(any, "operator==\\(.*(= default;|\\{)", "Whether all members are equal.")
  rule(any, "operator!=\\([a-z_]*( const&)? ?[a-z]*\\) const", "Whether a loop goes on.")
  rule("program|testing|algorithm|tile", "static constexpr int lanes = ", "Lanes of its group: see Program.")
  rule("program|testing|algorithm|tile", "(struct|using|union) (alignas\\([0-9a-z_]+\\) )?scratch_type( |;|\\{|$)",
       "What its lanes share, uninitialised at first: see Program.")
  rule("program", "using scratch_for =", "What lanes of a kind of group share: see Program.")
  rule("program|testing|algorithm", "operator\\(\\)\\((Group|G|cuda_block<lanes>|cuda_warp) const&",
       "The work of one group: see Program.")
  rule("algorithm", "static constexpr char const\\* function = ", "The name of the call in messages.")
  rule("algorithm", "static constexpr char const\\* name = ", "The program's name in explanations.")
  rule("algorithm", "static constexpr refusal refuses_types\\(\\)", "Why these types are not taken: see exec/run.hpp.")
  rule("algorithm", "static refusal refuses\\(", "Why a call is not taken: see exec/run.hpp.")
  rule("algorithm", "static void run\\(basic_cuda", "Enqueues a call that is taken: see exec/run.hpp.")
  rule("algorithm", "bool is_empty\\(\\) const", "Whether there is nothing to do.")
  rule("program", "std::int64_t groups\\(\\) const", "How many groups it takes: the `count` of Executor::run.")
  rule("program", "static constexpr bool is_persistent",
       "Whether groups go from work item to work item themselves: exec/cuda.cuh.")
  rule("program", "static constexpr int from_architecture",
       "The first architecture it is for, 900 for sm_90: exec/cuda.cuh.")
  rule("program", "static constexpr int before_architecture",
       "The first architecture it is not for any more: exec/cuda.cuh.")
  rule("program", "static constexpr int blocks_per_multiprocessor",
       "Thread blocks that registers and shared memory leave room for: exec/cuda.cuh.")
  rule("program", "static constexpr int groups_per_block", "Groups of 32 lanes in a thread block: exec/cuda.cuh.")
  rule(values, "using state_type =", "What it reduces to: see Reducer.")
  rule(values, "using input_type =", "What it takes in: see Reducer.")
  rule(values, "[ &]identity\\(\\)", "The state of nothing: see Reducer.")
  rule(values "|entropy", "void push\\(state_type", "Takes in one value: see Reducer.")
  rule(values, "void merge\\(state_type", "Adds what another state has seen: see Reducer.")
  rule("quantize", "using code_type =", "What a value becomes: see Quantizer.")
  rule("quantize", "using params_type =", "What a group shares: see Quantizer.")
  rule("quantize", "static constexpr int group =",
       "Values that share parameters, 0 for all of a tensor: see Quantizer.")
  rule("quantize", " range\\(\\) const", "The Reducer that finds a group's range: see Quantizer.")
  rule("quantize", " fit\\(", "The parameters of a group with this range: see Quantizer.")
  rule("quantize", " encode\\(", "The code of a value: see Quantizer.")
  rule("quantize", " decode\\(", "The value of a code: see Quantizer.")
  rule("quantize", " max_error\\(", "The most that a value of the group is moved: see Quantizer.")
  rule("merge", " mix\\(", "The weights of the two vectors: see Merger.")
  rule("merge", " keep\\(", "The factors that restore both vectors: see Merger.")
  rule("project", "static constexpr int rank =", "Coefficients of a row: see Projector.")
  rule("project", "(using|struct) basis_type( |;|\\{|$)", "What is fitted: see Projector.")
  rule("project", " fit\\(", "The basis of `count` rows: see Projector.")
  rule("project", " project\\(", "The coefficients of a row: see Projector.")
  rule("project", " reconstruct\\(", "The row of some coefficients: see Projector.")
  rule("select", "static constexpr int chunk =", "Keys of a chunk: see ChunkSelector.")
  rule("select", "using group_type =", "How the query heads of a key head agree: see ChunkSelector.")
  rule("select", "using element_type =", "The type of what is kept of a chunk: see ChunkSelector.")
  rule("select", " elements\\(std::int64_t", "Elements kept of a chunk: see ChunkSelector.")
  rule("select", " pieces\\(std::int64_t", "Pieces that can be made at the same time: see ChunkSelector.")
  rule("select", "void reduce\\(", "Makes one piece of what is kept: see ChunkSelector.")
  rule("select", "float score\\(", "How much a query wants a chunk: see Selector and ChunkSelector.")
  rule("select", " budget\\(std::int64_t", "How many of the candidates are taken: see Selector and ChunkSelector.")
  rule("select", "using landmark_type =", "What stands for a chunk, channel by channel: see Selector.")
  rule("select", " summary\\(\\)", "The Reducer that summarises a channel of a chunk: see Selector.")
  rule("select", " landmark\\(", "The landmark of a summary: see Selector.")
  rule("entropy", "using symbol_type =", "What is coded: see EntropyCoder.")
  rule("entropy", "static constexpr int alphabet =", "How many symbols there are: see EntropyCoder.")
  rule("entropy", "(using|struct) model_type( |;|\\{|$)", "What tables are made from: see EntropyCoder.")
  rule("entropy", "(using|struct) encode_state( |;|\\{|$)", "A lane that symbols are pushed to: see EntropyCoder.")
  rule("entropy", "(using|struct) decode_state( |;|\\{|$)", "A lane that symbols are popped from: see EntropyCoder.")
  rule("entropy", "make_encode_table\\(", "The table for pushing: see EntropyCoder.")
  rule("entropy", "make_decode_table\\(", "The table for popping: see EntropyCoder.")
  rule("entropy", " start\\(\\)", "A lane with no symbols: see EntropyCoder.")
  rule("entropy", " push\\(", "Puts a symbol on a lane, which may spill a word: see EntropyCoder.")
  rule("entropy", " pop\\(", "Takes a symbol from a lane: see EntropyCoder.")
  rule("entropy", " wants_word\\(", "Whether a lane must be fed a word before the next symbol: see EntropyCoder.")
  rule("entropy", " feed\\(", "Gives a lane the word it wants: see EntropyCoder.")
  rule("entropy", " finished\\(", "Whether all symbols have been popped: see EntropyCoder.")
  rule("tile|program", "void load\\((Group|G) const&", "Loads a tile: see TileSource.")
  rule("tile|program|algorithm|view|testing", "using value_type =", "The type of an element.")
  rule("tile|program", "std::int64_t rows\\(\\) const", "Rows of the matrix: see TileSource.")
  rule("tile|program", "std::int64_t columns\\(\\) const", "Columns of the matrix: see TileSource.")
  rule("tile", "using group_type =", "Who multiplies: see TileMma.")
  rule("tile", "using operand_type =", "The type of the elements of a and b: see TileMma.")
  rule("tile", "using sum_type =", "The type of a sum: see TileMma.")
  rule("tile", "static constexpr int rows = ", "Rows of a tile.")
  rule("tile", "static constexpr int columns = ", "Columns of a tile.")
  rule("tile", "static constexpr int depth = ", "Products of a sum in one multiply(): see TileMma.")
  rule("tile", "struct a_tile( |;|\\{|$)", "rows x depth elements, opaque: see TileMma.")
  rule("tile", "struct b_tile( |;|\\{|$)", "depth x columns elements, opaque: see TileMma.")
  rule("tile", "struct sum_tile( |;|\\{|$)", "rows x columns sums, opaque: see TileMma.")
  rule("tile", " load_a\\(", "Fills an a_tile from rows `stride` elements apart: see TileMma.")
  rule("tile", " load_b\\(", "Fills a b_tile from rows `stride` elements apart: see TileMma.")
  rule("tile", " clear\\(", "Makes sums zero: see TileMma.")
  rule("tile", " multiply\\(", "Adds a * b to the sums: see TileMma.")
  rule("tile", "void store\\(", "Writes sums to rows `stride` elements apart: see TileMma.")
  rule("tile|testing", "static constexpr int size = ", "Lanes of the group: see Group.")
  rule("tile|testing", "static constexpr tessera::architecture architecture = ",
       "The architecture it is compiled for: see Group.")
  rule("tile|testing", " begin\\(\\) const", "The first lane of a loop: see Group.")
  rule("tile|testing", " end\\(\\) const", "Behind the last lane of a loop: see Group.")
  rule("tile|testing", "void sync\\(\\) const", "What lanes wrote before, all lanes see after: see Group.")
  rule("tile|testing", " atomic_add\\(", "Adds as one step and gives the value before: see Group.")
  rule("tile|testing", "void report\\(status_word\\*", "Keeps the first failure in the status word: see Group.")
  rule("tile|testing", " (reduce|sum|maximum|minimum|exclusive_sum|broadcast|any|all|ballot|count_below)\\(",
       "A collective; per_lane.hpp has its meaning and order.")
  rule("tuning|program", "using policy_type =", "The numbers that are chosen: see Tuning.")
  rule("tuning", "operator\\(\\)\\(int", "The numbers for an architecture: see Tuning.")
  rule("core", "static constexpr int bits =", "Bits of a value, sign included.")
  rule("core", "static constexpr int exponent_bits =", "Bits of the exponent field: see Scalar.")
  rule("core", "static constexpr int mantissa_bits =",
       "Bits of the mantissa field, without the implicit one: see Scalar.")
  rule("core", "static constexpr int exponent_bias =", "The exponent field of 1.0: see Scalar.")
  rule("core", "static constexpr bool has_infinity =",
       "Whether there are infinities; else large values saturate: see Scalar.")
  rule("core", "static constexpr bits_type nan_bits =", "The NaN that store() makes: see Scalar.")
  rule("core", "static constexpr bits_type largest_bits =", "The largest finite value.")
  rule("core", "using bits_type =", "An unsigned integer of the same size: see Scalar.")
  rule("core", "using compute_type =", "What load() gives, for arithmetic: see Scalar.")
  rule("core", " name\\(\\)", "The type's name in messages.")
  rule("core", " to_bits\\(", "The bit pattern of a value: see Scalar.")
  rule("core", " from_bits\\(", "The value of a bit pattern: see Scalar.")
  rule("core", " load\\(", "The exact value, for arithmetic: see Scalar.")
  rule("core", " store\\(", "The nearest stored value, ties to even: see Scalar.")
  rule("tile|testing", "static constexpr int lanes_here = ", "Lanes that one thread stands for.")
  rule("tile|testing", " slot\\(int", "Where per_lane keeps a lane's value.")
  rule("tile|testing", "operator\\*\\(\\) const", "The lane.")
  rule("tile|testing", "operator\\+\\+\\(\\)", "To the next lane.")
  rule("tile|program", "std::int32_t count\\(\\) const", "How many work items there are.")
  rule("tile|program", "gemm_work_item at\\(std::int32_t index\\) const",
       "The work item at `index`, from 0 to count() - 1.")
  rule("tile|program", "std::int32_t k_tile\\(std::int32_t k\\) const",
       "The number of the k-tile at index `k` of the list.")
  rule("testing", " value\\(std::uint64_t seed, std::uint64_t index\\) const",
       "The number at `index`; the same on every machine.")
  # Members that many programs have; the type says what they are for.
  rule("program", "^ *cache_memory<T> memory;", "Where the layers of this part lie.")
  rule("program", "^ *S selector;", "Scores landmarks and says how many chunks are taken.")
  rule("program", "^ *status_word\\* status( = nullptr)?;", "What failures are reported to; null if nobody asks.")
  rule("program", "^ *array_view<loss_token_factors const> tokens;", "What the gradient needs of each token.")
  rule("program", "^ *loss_entry_order order;", "Memory for the order of entries.")
  rule("program", "^ *loss_marks marks;", "Which entries may matter to which tokens.")
  rule("program", "^ *Epilogue epilogue;", "What becomes of sums.")
  rule("program", "^ *Map map;", "What is stored for a sum.")
  rule("program", "^ *R reducer;", "What rows are reduced by.")
  rule("program", "^ *attention_shape shape;", "The extents of the call.")
  rule("program", "^ *attention_partials<softmax_type::state_type> partials;", "Memory for splits of rows, or null.")
  rule("program", "^ *sequence_lengths (query_|key_)?lengths;", "Of each sequence; null: all are whole.")
  rule("program", "^ *bool is_causal;", "Whether a query sees no key behind its own.")
  rule("program", "^ *static constexpr bool needs_specific_architecture",
       "It needs the instructions of one architecture, sm_90a: exec/cuda.cuh.")
  rule("program", "^ *static constexpr bool waits_for_stream",
       "It says itself when it needs what came before it: tile/cuda/sm_90/dependent_launch.cuh.")
  rule("program", "^ *static constexpr int blocks_per_cluster", "Thread blocks that share operands: exec/cuda.cuh.")
  rule("program", "^ *static constexpr float log2_e", "From natural exponents to base 2.")
  rule("program", "^ *static constexpr int most_tasks", "Tensors that a launch takes at most.")
  rule("program", "^ *int tasks;", "Tensors of this launch.")
  rule("program", "^ *static constexpr int warps =", "Warps of a thread block, or those that multiply.")
  rule("program", "^ *static constexpr int most_channels", "Channels of a head at most.")
  rule("program", "^ *static constexpr int panels", "Parts of a row, as wide as a box of TMA may be.")
  rule("program", "^ *static constexpr int strips", "Parts of 16 channels.")
  rule("program", "^ *static constexpr int depth_steps", "Multiplications for one sum over the channels.")
  rule("program", "^ *static constexpr int tokens =", "Tokens at a time.")
  rule("program", "^ *static constexpr int row_weights", "Weights that all lanes take at a time.")
  rule("program", "^ *static constexpr int weights_per_lane", "Neighbouring weights that a lane takes at a time.")
  rule("program", "^ *static constexpr int pairs =", "Symbols of a row of a lane.")
  rule("program", "^ *static constexpr int granularity", "Coded blocks hold a multiple of this many weights.")
  rule("program", "^ *static constexpr box_swizzle swizzle", "How rows are permuted in shared memory.")
  rule("program", "^ *static constexpr int stages", "Pipeline stages in shared memory.")
  rule("program", "^ *using softmax_type =", "How rows of scores are reduced.")
  rule("program", "^ *using softmax =", "How rows of scores are reduced.")
  rule("program", "^ *using row_type =", "The state of a row of scores.")
  rule("program", "^ *using shape =", "Extents and shared memory.")
  rule("program", "^ *using (pipeline_type = attention_pipeline|stages_type =)",
       "Extents, pipeline stages, and the loads into them.")
  rule("program", "^ *using [a-z]+_type = (typename )?(pipeline_state|[a-z_]+::pipeline_type|stages_type::state_type)",
       "A position in the pipeline: the stage, and its parity.")
  rule("program", "^ *using ahead_type =", "What is known of the next work items.")
  rule("program", "^ *using split_type =", "What a warp has added up of a work item.")
  rule("program", "^ *using columns_type =", "What a warp keeps of its rows.")
  rule("program", "^ *using record =", "How values of a chunk are kept.")
  rule("program", "^ *using element_type =", "The type of an element.")
  rule("program", "^ *using mma =", "The product of a tile.")
  rule("program", "^ *using layout =", "The tile of logits.")
  rule("program", "^ *using operand =", "What elements are and how products add up.")
  rule("program", "^ *using operand_type =", "The type of an element of a and b.")
  rule("program", "^ *using mantissa =", "All bits of mantissas are kept.")
  rule("program", "^ *using steps =", "How blocks are read and written.")
  rule("program", "^ *using portable =", "The portable program, whose bytes these are.")
  rule("program", "^ *using code_type =", "The code of a value.")
  rule("program", "^ *shared_barrier [a-z_]*full\\[", "One a stage: what was asked for is there.")
  rule("program", "^ *shared_barrier [a-z_]*empty\\[", "One a stage: what was there is not needed any more.")
  rule("program", "^ *TESSERA_FN constexpr void operator\\(\\)\\(std::int64_t row, std::int64_t column, Sum",
       "Takes the finished sum of a coordinate.")
  rule("map|program", "^ *TESSERA_FN (constexpr )?[a-zA-Z]+ operator\\(\\)\\(Sum sum, std::int64_t",
       "What is stored for a sum.")
  rule("program", "^ *TESSERA_FN float operator\\(\\)\\(std::int64_t sequence, std::int64_t head, std::int64_t token",
       "One channel of a token.")
  rule("program", "^ *using base = ", "What it is made from.")
  rule("program", "^ *using base::", "Of head_lanes.")
  rule("program", "^ *static constexpr int rows =", "Rows at a time.")
  rule("program", "^ *static constexpr int channels =", "Channels of a head.")
  rule("program", "^ *static constexpr int [ab]_bytes =", "Bytes of an operand in a stage.")
  rule("program", "^ *tensor_map a;", "Boxes of the rows of the product.")
  rule("program", "^ *tensor_map b;", "Boxes of the columns of the product.")
  rule("program", "^ *Schedule schedule;", "The tiles, and the k-tiles over which each is summed.")
  rule("program", "^ *alignas\\(1024\\) unsigned char [ab]\\[", "Stages of an operand.")
  rule("program", "^ *float const\\* scale;", "What all gradients are multiplied by, in memory.")
  fold = ": see row_fold.hpp."
  rule("program|reduce", "static constexpr bool is_pushed", "Whether values are to be pushed, besides" fold)
  rule("program|reduce", "static constexpr bool uses_exponentials", "Whether it looks at exponentials" fold)
  rule("program|reduce", "static constexpr bool uses_bounds", "Whether it asks which columns exist" fold)
  rule("program|reduce", "struct part( |;|\\{|$)", "What a lane makes of its values of a row" fold)
  rule("program|reduce", "void take\\(part&", "Takes one value" fold)
  rule("program|reduce", "void settle\\(part&", "Comes after the last value" fold)
  rule("program|reduce", "void join\\(part&", "Adds a part of other values of the row" fold)
  rule("program|reduce", "state_type finish\\(part const&",
       "The state of a row, from the part of all of its values" fold)
  rule("program|reduce", "void add\\(state_type&", "Adds a state that finish() has made, but for what is pushed" fold)
  rule("program|reduce", "void keep\\(state_type&", "Puts what add() has made of a copy of `kept` in its place" fold)
  rule("program", "^ *loss_logits<Tile> logits;", "How logits are made.")
  rule("program", "^ *float smoothing;", "Of labels: so much probability is spread over the vocabulary.")
  rule("program", "^ *float z_factor;", "Of the squared log-sum-exp.")
  rule("program", "^ *std::int64_t vocabulary;", "Entries of the vocabulary.")
  rule("program", "^ *matrix_view<Output> target;", "Rows x columns of results.")
  rule("program", "^ *schedule_type schedule;", "The schedule of work items.")
  rule("program", "^ *ahead_type ahead;", "What warps need to know of the next work items.")
  rule("program", "^ *tile_summaries summaries;", "Sums and ranges of tiles.")
  rule("program", "^ *array_view<subspace_measures> measures;", "Of the search for directions.")
  rule("program", "^ *__device__ __forceinline__ void load\\(std::uint8_t const\\* planes",
       "Asks for the signs and mantissas of `rows` rows.")
  rule("program", "^ *__device__ __forceinline__ uint4 row\\(int which",
       "Sixteen bytes of weights: of a row, with its exponents.")
  rule("program", "^ *__device__ __forceinline__ void row\\(int which",
       "Takes sixteen bytes of weights of a row apart.")
  rule("program", "^ *__device__ __forceinline__ void store\\(std::uint8_t\\* planes",
       "Writes the signs and mantissas of `rows` rows.")
  rule("program", "^ *__device__ __forceinline__ void prepare\\(\\) const", "Called once, before all tiles.")
  rule("program", "^ *__device__ __forceinline__ void finish\\(\\) const", "Called once, after all tiles.")
  rule("program", "^ *__device__ __forceinline__ void operator\\(\\)\\((Sum const|float) \\(&sums\\)",
       "Takes the finished sums of a warp; gemm/gemm_cooperative.cuh has their layout.")
  rule("program", "^ *__device__ __forceinline__ void operator\\(\\)\\(loss_part_range",
       "Takes the finished sums of a tile.")
  rule("exec", "void\\* allocate\\(",
       "Bytes of this memory; throws std::bad_alloc or device_error: see MemoryResource.")
  rule("exec", "void deallocate\\(", "Gives bytes back: see MemoryResource.")
}

# The comment that a declaration without one gets, or nothing.
function description(line, i) {
  if (line !~ /^ *([A-Za-z_]|\[\[)/) return ""
  if (line ~ "^(template <[^{}]*> *)?(requires.* )?(struct|class) (" stem "|" named ")( |;|$|:)" && line !~ /;$/)
    return "@copydoc " path
  if (folder == "concepts" && line ~ "^concept " concept_name " =") return "@copydoc " path
  # Doxygen 1.9.4 says nothing of such concepts, but it does of this command.
  if (line ~ /^concept /) return "@concept_without_a_comment"
  if (folder == "program" && line ~ "^ *(" typed ")(<.*>)? [a-z_]+;") {
    sub(/^ */, "", line)
    sub(/[< ].*/, "", line)
    return "@copybrief tessera::v0::" line
  }
  for (i = 1; i <= rules; ++i) {
    if (folder ~ rule_folders[i] && line ~ rule_pattern[i]) return rule_text[i]
  }
  return ""
}

function flush_held(text, i) {
  for (i = 1; i <= held; ++i) print (i == 1 && text != "" ? "/** " text " */ " : "") lines[i]
  held = 0
}

NR == 1 {
  path = FILENAME
  sub(/^(.*\/)?include\//, "", path)
  folder = path
  sub(/^tessera\//, "", folder)
  if (folder !~ /\//) folder = "user"
  sub(/\/.*/, "", folder)
  stem = path
  sub(/.*\//, "", stem)
  sub(/\..*/, "", stem)
  named = stem
  # The concept of chunk_selector.hpp is ChunkSelector.
  concept_name = ""
  for (words = split(stem, word, "_"); words > 0; --words)
    concept_name = toupper(substr(word[words], 1, 1)) substr(word[words], 2) concept_name
}
NR == 1 && /SPDX/ { print "/// @file"; next }
NR == 2 && /^\/\/\/ `[a-z0-9_]+`/ {
  named = $2
  gsub(/[^a-z0-9_]/, "", named)
}
# A constraint of several lines says nothing that a reader of the site needs, and Doxygen 1.9.4 stumbles over it.
/^ *requires requires \{$/ { is_constraint = 1 }
is_constraint { print ""; is_constraint = $0 !~ /^ *\}$/; next }
# The first lines of a template wait for the declaration that they belong to.
/^ *(template <.*>|requires.*[^;{},])$/ { lines[++held] = $0; next }
{
  lines[++held] = $0
  is_described = was_comment || in_body > 0 || $0 ~ /\/\/\/</
  if ($0 !~ /^ *\/\/ clang-format/) was_comment = $0 ~ /^ *\/\/\//
  flush_held(is_described ? "" : description($0))
  # What stands in braces that no type and no namespace opened is a body, where nothing is declared.
  text = $0
  sub(/\/\/.*/, "", text)
  opened = gsub(/\{/, "{", text)
  closed = gsub(/\}/, "}", text)
  if (in_body > 0) {
    in_body += opened - closed
  } else if (opened > closed && text !~ type_or_namespace) {
    in_body = opened - closed
  }
}
END { flush_held("") }
