// Gradients of the luma by operators of 3 × 3 weights: Sobel, Scharr, Prewitt and the Laplacian. A
// table maps the length of a gradient to a tone. A block makes 128 × 64 pixels; a thread makes the
// same four pixels of EDGES_ROWS rows.
#include "filters/edges/spread.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/luma.cuh"

// The head of the data. Behind it lie `last` + 1 tones, one for every length of a gradient; longer
// gradients have the last tone.
struct Edges {
    int by;    // one of Operator
    int part;  // of slopes: 0 x, 1 y, 2 both; of the Laplacian: the weight of a corner
    int last, reserved;
};

enum Operator { SOBEL, SCHARR, PREWITT, LAPLACIAN };

constexpr int EDGES_WIDTH = 128, EDGES_HEIGHT = 64, EDGES_WORDS = EDGES_WIDTH / 4 + 2,
              EDGES_ROWS = 8;
constexpr int MOST_TONES = 5771, MOST_SHORT = 2000;

// Stage the lumas of a tile, with one more row on top and bottom and four more pixels on either
// side.
template <int C>
static __device__ __noinline__ void stage_luma_ends(const Item& item, const Tile& tile, u32* grey)
{
    for (int i = threadIdx.x; i < (tile.height + 2) * EDGES_WORDS; i += THREADS) {
        int x = tile.x + i % EDGES_WORDS * 4 - 4, y = tile.y + i / EDGES_WORDS - 1;
        if (x <= tile.x + tile.width) grey[i] = row_lumas4<C>(source_row(item, y), item.width, x);
    }
}

// Stage ACROSS words of every row from word FIRST on, for tiles that lie within their rows and
// whose words are aligned.
template <int C, int FIRST, int ACROSS>
__device__ __forceinline__ void stage_lumas(const Item& item, const Tile& tile, u32* grey)
{
    constexpr int STEP = THREADS / ACROSS, ROWS = EDGES_HEIGHT + 2;
    int first = threadIdx.x / ACROSS, word = FIRST + threadIdx.x % ACROSS,
        offset = (tile.x + 4 * word - 4) * C;
    grey += first * EDGES_WORDS + word;
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
        if (row + STEP > ROWS && first + row >= ROWS) return;
        const u32* from = (const u32*)(source_row(item, tile.y + first + row - 1) + offset);
        u32 words[C];
        for (int c = 0; c < C; ++c) words[c] = from[c];
        grey[row * EDGES_WORDS] = lumas4<C>(words);
    }
}

// Four lumas of a row and their neighbours, two a word: the left neighbours of the even ones, the
// even ones, the odd ones, and the right neighbours of the odd ones.
struct Lumas {
    u32 left, even, odd, right;

    __device__ __forceinline__ explicit Lumas(const u32* words)
    {
        left = __funnelshift_r(words[0], words[1], 24) & HALVES;
        even = words[1] & HALVES, odd = words[1] >> 8 & HALVES;
        right = __funnelshift_r(words[1], words[2], 16) & HALVES;
    }
};

// Gradient along both axes: differences of neighbours, smoothed across by the weights SIDE, MIDDLE
// and SIDE. LONG: lengths above MOST_SHORT have tones of their own.
template <int SIDE, int MIDDLE, bool LONG = false> struct Slope {
    // Larger than any difference, so that halves stay positive.
    static constexpr u32 MORE = SIDE == 1 ? 1024 : 4096;
    float x, y, last;  // x and y are 1 if that direction counts, else 0

    __device__ __forceinline__ Slope(const Edges& of)
        : x(of.part == 1 ? 0.0f : 1.0f),
          y(of.part == 0 ? 0.0f : 1.0f),
          last(as_float(of.last))
    {
    }

    __device__ __forceinline__ static u32 smooth(u32 a, u32 b, u32 c)
    {
        return SIDE * (a + c) + MIDDLE * b;
    }

    // Return one half of a word, less MORE, times a factor of 0 or 1; this is exact.
    __device__ __forceinline__ static float half(u32 word, u32 which, float factor)
    {
        float moved = __uint_as_float(__byte_perm(word, 0x4B000000, which));
        return __fmaf_rn(moved, factor, -(8388608.0f + MORE) * factor);
    }

    // Return rint(sqrt(dx² + dy²)), at most `last`. The root is never half-way between integers,
    // because no square of an integer and a half is an integer. Roots come out within 0.51 units of
    // the last place, by one step of Newton's method after 22 bits; up to MOST_SHORT no half is that
    // near. Larger ones are at most one off after rounding, and the remainder of the square shows
    // which way; it is exact, because no sum on the way needs more than 24 bits.
    __device__ __forceinline__ u32 length(u32 dx, u32 dy, u32 which) const
    {
        float across = half(dx, which, x), down = half(dy, which, y);
        float square = __fmaf_rn(across, across, __fmul_rn(down, down));
        float inverse = rsqrtf(fmaxf(square, 0.5f)), root = __fmul_rn(square, inverse);
        if constexpr (!LONG) {
            root = __fmaf_rn(__fmaf_rn(-root, root, square), __fmul_rn(0.5f, inverse), root);
        } else {
            root = __fsub_rn(__fadd_rn(root, 8388608.0f), 8388608.0f);
            float more = __fmaf_rn(down, down, __fmaf_rn(-root, root, __fmul_rn(across, across)));
            root = fmaxf(root + (more > root ? 1.0f : more <= -root ? -1.0f : 0.0f), 0.0f);
        }
        return __float_as_uint(__fadd_rn(fminf(root, last), 8388608.0f)) & 8191;
    }

    // The tones of four pixels from three rows of lumas.
    __device__ __forceinline__ u32 operator()(const Lumas* rows, const u8* tones) const
    {
        constexpr u32 BOTH = MORE * 0x10001, LOW = 0x7610, HIGH = 0x7632;
        const Lumas &a = rows[0], &b = rows[1], &c = rows[2];
        u32 x[2] = {BOTH + smooth(a.odd, b.odd, c.odd) - smooth(a.left, b.left, c.left),
            BOTH + smooth(a.right, b.right, c.right) - smooth(a.even, b.even, c.even)};
        u32 y[2] = {BOTH + smooth(c.left, c.even, c.odd) - smooth(a.left, a.even, a.odd),
            BOTH + smooth(c.even, c.odd, c.right) - smooth(a.even, a.odd, a.right)};
        u32 tone[4];
        for (int k = 0; k < 4; ++k) tone[k] = tones[length(x[k % 2], y[k % 2], k < 2 ? LOW : HIGH)];
        return packed(tone[0], tone[1], tone[2], tone[3]);
    }
};

// The Laplacian: differences to the neighbours at the corners, or else to those at the sides.
struct Laplacian {
    u32 corner, side;
    int last;

    __device__ __forceinline__ Laplacian(const Edges& of)
        : corner(of.part),
          side(of.part ? 0 : 1),
          last(of.last)
    {
    }

    // Return the difference plus 2048, in both halves.
    __device__ __forceinline__ u32 difference(u32 corners, u32 sides, u32 middle) const
    {
        return 0x08000800 + corner * corners + side * sides - 4 * (corner + side) * middle;
    }

    __device__ __forceinline__ u32 operator()(const Lumas* rows, const u8* tones) const
    {
        const Lumas &a = rows[0], &b = rows[1], &c = rows[2];
        u32 even =
            difference(a.left + a.odd + c.left + c.odd, b.left + b.odd + a.even + c.even, b.even);
        u32 odd = difference(
            a.even + a.right + c.even + c.right, b.even + b.right + a.odd + c.odd, b.odd);
        int found[4] = {
            (int)(even & 0xFFFF), (int)(odd & 0xFFFF), (int)(even >> 16), (int)(odd >> 16)};
        u32 tone[4];
        for (int k = 0; k < 4; ++k) tone[k] = tones[min(abs(found[k] - 2048), last)];
        return packed(tone[0], tone[1], tone[2], tone[3]);
    }
};

template <int C>
__device__ __forceinline__ void stage_edges(const Item& item, const Tile& tile, u32* grey)
{
    bool within = tile.x >= 4 && tile.x + EDGES_WIDTH + 4 <= item.width;
    if (!within || item.width * C % 4 != 0) {
        stage_luma_ends<C>(item, tile, grey);
        return;
    }
    stage_lumas<C, 0, 32>(item, tile, grey);
    stage_lumas<C, 32, 2>(item, tile, grey);
}

// Compute the tones of EDGES_ROWS rows of four pixels; `words` points at the word before those of
// the row above.
template <class Rule>
__device__ __forceinline__ void edges_down(
    const Rule& rule, const u32* words, const u8* tones, u32* made)
{
    Lumas rows[3] = {Lumas(words), Lumas(words + EDGES_WORDS), Lumas(words)};
#pragma unroll
    for (int i = 0; i < EDGES_ROWS; ++i) {
        rows[2] = Lumas(words + (i + 2) * EDGES_WORDS);
        made[i] = rule(rows, tones);
        rows[0] = rows[1], rows[1] = rows[2];
    }
}

template <int C>
__device__ __forceinline__ void store_tones(
    const Item& item, const Tile& tile, int group, int first, const u32* made, u32* out)
{
    if (4 * group >= tile.width) return;
#pragma unroll
    for (int i = 0; i < EDGES_ROWS; ++i) {
        if (first + i >= tile.height) continue;
        int x = tile.x + 4 * group, y = tile.y + first + i;
        grey_pixels4<C>(item, x, y, made[i], out + ((first + i) * (EDGES_WIDTH / 4) + group) * C);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
    edges(const Item* items, const u32* starts, int n)
{
    __shared__ u32 grey[(EDGES_HEIGHT + 2) * EDGES_WORDS];
    __shared__ uint4 out[EDGES_WIDTH * EDGES_HEIGHT / 4 + 1];
    __shared__ uint4 table[MOST_TONES / 16 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, EDGES_WIDTH, EDGES_HEIGHT);
    const Edges of = *global<const Edges>(item.data);
    const uint4* from = global<const uint4>(item.data + sizeof(Edges));
    for (int i = threadIdx.x; i <= of.last / 16; i += THREADS) table[i] = from[i];
    if (item.channels == 1) stage_edges<1>(item, tile, grey);
    else if (item.channels == 3) stage_edges<3>(item, tile, grey);
    else stage_edges<4>(item, tile, grey);
    __syncthreads();
    int group = threadIdx.x % (EDGES_WIDTH / 4),
        first = threadIdx.x / (EDGES_WIDTH / 4) * EDGES_ROWS;
    const u32* words = grey + first * EDGES_WORDS + group;
    const u8* tones = (const u8*)table;
    u32 made[EDGES_ROWS];
    if (of.by == SOBEL) edges_down(Slope<1, 2>(of), words, tones, made);
    else if (of.by == SCHARR && of.last > MOST_SHORT)
        edges_down(Slope<3, 10, true>(of), words, tones, made);
    else if (of.by == SCHARR) edges_down(Slope<3, 10>(of), words, tones, made);
    else if (of.by == PREWITT) edges_down(Slope<1, 1>(of), words, tones, made);
    else edges_down(Laplacian(of), words, tones, made);
    if (item.channels == 1) store_tones<1>(item, tile, group, first, made, (u32*)out);
    else if (item.channels == 3) store_tones<3>(item, tile, group, first, made, (u32*)out);
    else store_tones<4>(item, tile, group, first, made, (u32*)out);
    __syncthreads();
    store_tile_of<EDGES_WIDTH>(item, tile, (const u8*)out);
}
LAUNCHED_BY_TILES(edges, EDGES_WIDTH, EDGES_HEIGHT);
