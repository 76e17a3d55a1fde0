// A linear filter as two passes within one tile, by tensor cores, where a window reaches at most
// REACH samples to either side: planes of bytes, sums along rows as two bytes each, sums of those
// down columns, and what a rule makes of them. Weights come byte by byte.

struct Separable {
    u32 parameters[4];  // the rule's
    uint4 weights[1];   // of rows, then of columns: [32 samples][byte of a weight][lane]
};

template <int REACH> struct Field {
    static constexpr int WIDTH = 64, HEIGHT = REACH == 8 ? 64 : 32, STEPS = (REACH + 8) / 16;
    static constexpr int PITCH = WIDTH / 4 + REACH / 2, DOWN = HEIGHT + 2 * REACH;  // words, rows
    static constexpr int PLANE = PITCH * DOWN, MIDDLE = WIDTH * DOWN / 4;           // words
    static constexpr int SUMS = REACH == 8 ? 2 : 1;  // planes whose sums of rows lie side by side
    // What planes and the rest need: sums of rows, then results side by side.
    __device__ static constexpr int words(int planes, int channels)
    {
        int results = WIDTH * HEIGHT / 4 * channels + 4, sums = 2 * MIDDLE * (planes > 1 ? SUMS : 1);
        return PLANE * planes + (results > sums ? results : sums);
    }
};

__device__ __forceinline__ const Separable& separable_of(const Item& item)
{
    return *global<const Separable>(item.data);
}

// Where rows lie in a plane, by sixteens: those that one lane sums up are four that follow.
__device__ __forceinline__ int row_place(int y)
{
    return (y & ~15) | (y & 2) << 2 | (y >> 1 & 6) | (y & 1);
}

// PLANES of the tile and of what its windows reach, or the luma of C channels as the only one.
// Apart, as `replicated4` is, for tiles at an end of their rows or with rows of no whole words.
template <int REACH, int C, int PLANES>
static __device__ __noinline__ void stage_ends(const Item& item, const Tile& tile, u32* planes)
{
    using F = Field<REACH>;
    for (int i = threadIdx.x; i < (tile.height + 2 * REACH) * F::PITCH; i += THREADS) {
        int row = i / F::PITCH, word = i % F::PITCH, x = tile.x + 4 * word - REACH;
        const u8* line = source_row(item, tile.y + row - REACH);
        u32 plane[C];
        if constexpr (PLANES == 1) plane[0] = row_lumas4<C>(line, item.width, x);
        else pixels4<C>(line, item.width, x, plane);
        for (int c = 0; c < PLANES; ++c) planes[c * F::PLANE + row_place(row) * F::PITCH + word] = plane[c];
    }
}

// ACROSS words of every row from word FIRST on, as many as there are. A thread goes down by sixteens
// of rows, so that all its places but the first are known beforehand.
template <int REACH, int C, int PLANES, int FIRST, int ACROSS>
__device__ __forceinline__ void stage_inside(const Item& item, const Tile& tile, u32* planes)
{
    using F = Field<REACH>;
    constexpr int STEP = THREADS / ACROSS;
    int first = threadIdx.x / ACROSS, word = FIRST + threadIdx.x % ACROSS;
    int offset = (tile.x + 4 * word - REACH) * C;
    u32* to = planes + row_place(first) * F::PITCH + word;
    if (word >= F::PITCH) return;
#pragma unroll
    for (int row = 0; row < F::DOWN; row += STEP) {
        if (row + STEP > F::DOWN && first + row >= F::DOWN) return;
        const u32* from = (const u32*)(source_row(item, tile.y + first + row - REACH) + offset);
        u32 plane[C], words[C];
        for (int c = 0; c < C; ++c) words[c] = from[c];
        if constexpr (PLANES == 1) plane[0] = lumas4<C>(words);
        else deinterleave<C>(words, plane);
        for (int c = 0; c < PLANES; ++c) to[c * F::PLANE + row * F::PITCH] = plane[c];
    }
}

template <int REACH, int C, int PLANES>
__device__ __forceinline__ void stage_field(const Item& item, const Tile& tile, u32* planes)
{
    using F = Field<REACH>;
    if (tile.x < REACH || tile.x + F::WIDTH + REACH > item.width || item.width * C % 4) {
        stage_ends<REACH, C, PLANES>(item, tile, planes);
        return;
    }
    stage_inside<REACH, C, PLANES, 0, 16>(item, tile, planes);
    stage_inside<REACH, C, PLANES, 16, REACH == 8 ? 4 : 16>(item, tile, planes);
}

template <int REACH>
__device__ __forceinline__ void stage_grey(const Item& item, const Tile& tile, u32* plane)
{
    if (item.channels == 1) stage_field<REACH, 1, 1>(item, tile, plane);
    else if (item.channels == 3) stage_field<REACH, 3, 1>(item, tile, plane);
    else stage_field<REACH, 4, 1>(item, tile, plane);
}

template <int N> __device__ __forceinline__ void load_weights(const uint4* from, uint4* weights)
{
#pragma unroll
    for (int i = 0; i < N; ++i) weights[i] = from[32 * i + threadIdx.x % 32];
}

// Sums of products with every byte of the weights as sums of products with the weights.
template <int BYTES> __device__ __forceinline__ void join_parts(const u32 (*parts)[4], u32* sums)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sums[i] = parts[BYTES - 1][i];
#pragma unroll
        for (int b = BYTES - 2; b >= 0; --b) sums[i] = 256 * sums[i] + parts[b][i];
    }
}

template <int N> __device__ __forceinline__ void begin_parts(u32 first, u32 (*parts)[4])
{
#pragma unroll
    for (int b = 0; b < N; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[b][i] = b ? 0 : first;
}

// A plane to sums along its rows, in two planes of bytes with columns as lines. A warp makes 16 ×
// 16 of them at a time.
template <int REACH, class Rule>
__device__ __forceinline__ void sum_rows(const u32* plane, const uint4* weights, int rows, u32* middle)
{
    using F = Field<REACH>;
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint4 left[F::STEPS * Rule::ACROSS];
    load_weights<F::STEPS * Rule::ACROSS>(weights, left);
    int x = threadIdx.x / 32 % 4;
    plane += g * F::PITCH + 4 * x + t, middle += (16 * x + g) * (F::DOWN / 4) + t;
    for (int y = threadIdx.x / 128; y < (rows + 15) / 16; y += 2) {
        u32 sums[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32* from = plane + (16 * y + 8 * half) * F::PITCH;
            u32 parts[Rule::ACROSS][4];
            begin_parts<Rule::ACROSS>(Rule::HALF, parts);
#pragma unroll
            for (int step = 0; step < F::STEPS; ++step) {
                u32 right[2] = {from[8 * step], from[8 * step + 4]};
#pragma unroll
                for (int b = 0; b < Rule::ACROSS; ++b)
                    multiply_add(left[step * Rule::ACROSS + b], right, parts[b]);
            }
            join_parts<Rule::ACROSS>(parts, sums[half]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 a = __byte_perm(sums[0][2 * i], sums[0][2 * i + 1], Rule::KEPT);
            u32 b = __byte_perm(sums[1][2 * i], sums[1][2 * i + 1], Rule::KEPT);
            u32* to = middle + 8 * i * (F::DOWN / 4) + 4 * y;
            to[0] = __byte_perm(a, b, 0x5410);
            to[F::MIDDLE] = __byte_perm(a, b, 0x7632);
        }
    }
}

// Sums down the columns, and the results in place of the samples.
template <int REACH, class Rule>
__device__ __forceinline__ void sum_columns(
    const Rule& rule, const u32* middle, const uint4* weights, int height, u32* plane)
{
    using F = Field<REACH>;
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint4 left[F::STEPS * Rule::DOWN];
    load_weights<F::STEPS * Rule::DOWN>(weights + 32 * F::STEPS * Rule::ACROSS, left);
    int x = threadIdx.x / 32 % 4;
    middle += (16 * x + g) * (F::DOWN / 4) + t, plane += REACH / 4 + 4 * x + t;
    for (int y = threadIdx.x / 128; y < (height + 15) / 16; y += 2) {
        u32 sums[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32* from = middle + 8 * half * (F::DOWN / 4) + 4 * y;
            u32 parts[Rule::DOWN + 1][4];
            begin_parts<Rule::DOWN + 1>(rule.half(), parts);
#pragma unroll
            for (int step = 0; step < F::STEPS; ++step) {
                u32 low[2] = {from[8 * step], from[8 * step + 4]};
                u32 high[2] = {from[F::MIDDLE + 8 * step], from[F::MIDDLE + 8 * step + 4]};
#pragma unroll
                for (int b = 0; b < Rule::DOWN; ++b) {
                    multiply_add(left[step * Rule::DOWN + b], low, parts[b]);
                    multiply_add(left[step * Rule::DOWN + b], high, parts[b + 1]);
                }
            }
            join_parts<Rule::DOWN + 1>(parts, sums[half]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32* at = plane + (16 * y + row_place(8 * i + g + REACH)) * F::PITCH;
            u32 four[4] = {sums[0][2 * i], sums[0][2 * i + 1], sums[1][2 * i], sums[1][2 * i + 1]};
            *at = rule(four, *at);
        }
    }
}

// Filter the first `n` of the staged planes in place; `middle` has the sums of rows. Where there is
// room for two of these, rows of the next plane go along with columns of this one.
template <int REACH, class Rule>
__device__ __forceinline__ void filter_planes(
    const Item& item, const Tile& tile, const Rule& rule, int n, u32* planes, u32* middle)
{
    using F = Field<REACH>;
    const uint4* weights = separable_of(item).weights;
    int rows = tile.height + 2 * REACH;
    __syncthreads();
    for (int c = -1; c < n; ++c) {
        if (c >= 0) {
            const u32* sums = middle + c % F::SUMS * 2 * F::MIDDLE;
            sum_columns<REACH>(rule, sums, weights, tile.height, planes + c * F::PLANE);
            if (F::SUMS == 1) __syncthreads();
        }
        u32* sums = middle + (c + 1) % F::SUMS * 2 * F::MIDDLE;
        if (c + 1 < n) sum_rows<REACH, Rule>(planes + (c + 1) * F::PLANE, weights, rows, sums);
        __syncthreads();
    }
}

// Store filtered planes as pixels of C channels, by way of `room`; one plane makes all of them.
template <int REACH, int C, int PLANES>
static __device__ __noinline__ void store_field(const Item& item, const Tile& tile, const u32* planes, u32* room)
{
    using F = Field<REACH>;
    const u32* from = planes + row_place(threadIdx.x / 16 + REACH) * F::PITCH + REACH / 4 + threadIdx.x % 16;
#pragma unroll
    for (int row = 0; row < F::HEIGHT; row += 16) {
        u32 words[C];
        for (int c = 0; c < C; ++c) words[c] = from[row * F::PITCH + (PLANES == 1 ? 0 : c * F::PLANE)];
        interleave<C>(words, room + (threadIdx.x + 16 * row) * C);
    }
    __syncthreads();
    store_tile<F::WIDTH * C>(item, tile, (const u8*)room);
}

template <int REACH> __device__ __forceinline__ Tile field_of(const Item& item, int block)
{
    return tile_of(item, block, Field<REACH>::WIDTH, Field<REACH>::HEIGHT);
}

// Every plane but alpha filtered, of an image of at most MOST channels.
template <int REACH, int MOST, class Rule>
__device__ __forceinline__ void separable_tile(const Item& item, int block, const Rule& rule, u32* planes)
{
    Tile tile = field_of<REACH>(item, block);
    int c = item.channels;
    u32* room = planes + MOST * Field<REACH>::PLANE;
    if (c == 1) stage_field<REACH, 1, 1>(item, tile, planes);
    else if (c == 3) stage_field<REACH, 3, 3>(item, tile, planes);
    else if constexpr (MOST == 4) stage_field<REACH, 4, 4>(item, tile, planes);
    filter_planes<REACH>(item, tile, rule, min(c, 3), planes, room);
    if (c == 1) store_field<REACH, 1, 1>(item, tile, planes, room);
    else if (c == 3) store_field<REACH, 3, 3>(item, tile, planes, room);
    else if constexpr (MOST == 4) store_field<REACH, 4, 4>(item, tile, planes, room);
}
