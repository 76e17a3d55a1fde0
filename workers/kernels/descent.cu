// Samples of any rank in large squares, plane by plane: of 32 × 64 results at once a warp finds the
// bits from the highest, descending wherever any of them may lie. How many samples of each square
// reach a level are products of bands of ones and of bits on the tensor cores: columns, then rows.

constexpr int DESCENT_WIDTH = 128, DESCENT_ACROSS = 4;  // pixels; groups of 16 columns a warp makes

// Squares whose 16 results see at most 16 · GROUPS samples in a row; a tile of HEIGHT rows.
template <int GROUPS_, int HEIGHT_> struct Descent {
    static constexpr int GROUPS = GROUPS_, HEIGHT = HEIGHT_, STEPS = (GROUPS + 1) / 2;
    static constexpr int COLUMNS = DESCENT_WIDTH + 16 * (GROUPS - 1), FOURS = HEIGHT / 4 + 4 * (GROUPS - 1);
    static constexpr int PITCH = COLUMNS + 8, WORDS = PITCH * FOURS;  // no two lanes in one bank
};

// What a warp multiplies by: for each step of 32 samples whether a square has them. Rows count twice,
// so that the bits of 128 add up to multiples of 256.
template <class D> struct Bands {
    uint4 rows[D::STEPS];
    u32 columns[D::STEPS][2][2];

    // Samples first, first + 1, first + skip, first + skip + 1 of a square that begins at 0.
    static __device__ __forceinline__ u32 band(int first, int skip, u32 size, u32 weight)
    {
        u32 made = 0;
        for (int i = 0; i < 4; ++i)
            if ((u32)(first + i / 2 * skip + i % 2) < size) made |= weight << 8 * i;
        return made;
    }

    __device__ __forceinline__ explicit Bands(int size)
    {
        int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < D::STEPS; ++j) {
            int y = 32 * j + 4 * t - g, x = 32 * j + 2 * t - g;
            rows[j] = {band(y, 2, size, 2), band(y - 8, 2, size, 2), band(y + 16, 2, size, 2),
                       band(y + 8, 2, size, 2)};
            for (int n = 0; n < 2; ++n)
                for (int half = 0; half < 2; ++half)
                    columns[j][n][half] = band(x - 8 * n + 16 * half, 8, size, 1);
        }
    }
};

// A level as four bytes see it, above the middle or up to it.
template <bool UPPER> struct Level {
    u32 complement;

    __device__ __forceinline__ explicit Level(u32 level) : complement((128 - level % 128) * 0x01010101) {}

    // The highest bits of those that reach it.
    __device__ __forceinline__ u32 reached(u32 samples) const
    {
        u32 low = (samples & 0x7F7F7F7F) + complement;
        return (UPPER ? low & samples : low | samples) & 0x80808080;
    }
};

// Sums of 16 columns for two times 16 rows, from words of four samples below each other: those of
// row g and of row g + 8, columns 2t, 2t + 1, 2t + 8 and 2t + 9.
template <class D, class L>
__device__ __forceinline__ void column_sums(const u32* at, const L& level, const Bands<D>& bands, uint2* made)
{
    u32 sums[2][2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        u32 ones[D::GROUPS + 2];
#pragma unroll
        for (int k = 0; k < D::GROUPS + 1; ++k) ones[k] = level.reached(at[4 * k * D::PITCH + 8 * n]);
        ones[D::GROUPS + 1] = 0;
#pragma unroll
        for (int m = 0; m < 2; ++m)
            for (int j = 0; j < D::STEPS; ++j) {
                if (2 * j + 1 == D::GROUPS) multiply_add_half(bands.rows[j].x, bands.rows[j].y, ones[m + 2 * j], sums[n][m]);
                else multiply_add(bands.rows[j], ones + m + 2 * j, sums[n][m]);
            }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        u32 *a = sums[0][m], *b = sums[1][m];
        made[m].x = __byte_perm(a[0], a[1], 0x3351) + 65536 * __byte_perm(b[0], b[1], 0x3351);
        made[m].y = __byte_perm(a[2], a[3], 0x3351) + 65536 * __byte_perm(b[2], b[3], 0x3351);
    }
}

// Of 64 results a lane, a bit each, the first in the highest: whether fewer than `enough` samples
// of their squares reach a level.
template <class D, class L>
__device__ __forceinline__ void below(
    const u32* at, const L& level, const Bands<D>& bands, int enough, u32* made)
{
    uint2 columns[DESCENT_ACROSS + D::GROUPS][2];
#pragma unroll
    for (int q = 0; q < DESCENT_ACROSS + D::GROUPS - 1; ++q) {
        column_sums(at + 16 * q, level, bands, columns[q]);
        columns[q + 1][0] = columns[q + 1][1] = make_uint2(0, 0);
        int first = q - D::GROUPS + 1;
        if (first < 0) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int m = i / 2, n = i % 2;
            u32 sums[4];
#pragma unroll
            for (int j = 0; j < D::STEPS; ++j) {
                const uint2 &a = columns[first + 2 * j][m], &b = columns[first + 2 * j + 1][m];
                if (2 * j + 1 == D::GROUPS) multiply_add_half(a.x, a.y, bands.columns[j][n][0], sums);
                else if (j == 0) multiply_from({a.x, a.y, b.x, b.y}, bands.columns[j][n], 0u - enough, sums);
                else multiply_add({a.x, a.y, b.x, b.y}, bands.columns[j][n], sums);
            }
            for (int k = 0; k < 4; ++k) made[first / 2] = __funnelshift_l(sums[k], made[first / 2], 1);
        }
    }
}

// The bits of 64 results a lane, of those that are `there`: a word of 32 for each of eight planes.
template <class D>
__device__ __forceinline__ void descend(
    const u32* at, const Bands<D>& bands, int enough, const u32* there, u32 (*planes)[8])
{
    int prefix = 0, bit = 7;
    while (prefix < 256) {
        u32 inside[2], under[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            inside[i] = there[i];
#pragma unroll
            for (int k = 1; k < 8; ++k)
                if (k > bit) inside[i] &= prefix >> k & 1 ? planes[i][k] : ~planes[i][k];
        }
        if (__ballot_sync(~0u, (inside[0] | inside[1]) != 0)) {
            int level = prefix | 1 << bit;
            if (level < 128) below(at, Level<false>(level), bands, enough, under);
            else below(at, Level<true>(level), bands, enough, under);
#pragma unroll
            for (int i = 0; i < 2; ++i)
                for (int k = 0; k < 8; ++k)
                    if (k == bit) planes[i][k] |= inside[i] & ~under[i];
            if (bit-- > 0) continue;
            bit = 0;
        }
        prefix += 2 << bit;
        bit = __ffs(prefix) - 2;
    }
}

// Channel `c` of the tile and what its squares see beyond, a word of four rows for each column.
template <class D>
__device__ __forceinline__ void stage_fours(const Item& item, const Tile& tile, int c, int size, u32* fours)
{
    int columns = tile.width + size - 1, rows = tile.height + size - 1;
    for (int four = threadIdx.x / 32; 4 * four < rows; four += THREADS / 32) {
        const u8* line[4];
        for (int k = 0; k < 4; ++k) line[k] = source_row(item, tile.y - size / 2 + 4 * four + k) + c;
        for (int x = threadIdx.x % 32; x < columns; x += 32) {
            int from = clamped(tile.x - size / 2 + x, item.width) * item.channels;
            fours[four * D::PITCH + x] = packed(line[0][from], line[1][from], line[2][from], line[3][from]);
        }
    }
}

// Where a lane's result `i` of 64 is in the 32 × 64 of its warp.
__device__ __forceinline__ int descent_row(int i) { return i / 8 % 2 * 16 + i / 2 % 2 * 8 + threadIdx.x % 32 / 4; }
__device__ __forceinline__ int descent_column(int i)
{
    return i / 16 * 16 + i / 4 % 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

template <class D>
__device__ __forceinline__ void descend_tile(const Item& item, int block, u32* fours)
{
    Tile tile = tile_of(item, block, DESCENT_WIDTH, D::HEIGHT);
    int size = median_size(item), rank = global<const int>(item.data)[1];
    int warp = threadIdx.x / 32, left = warp % 2 * 64, top = warp / 2 * 32;
    const u32* at = fours + (top / 4 + threadIdx.x % 4) * D::PITCH + left + threadIdx.x % 32 / 4;
    Bands<D> bands(size);
    u32 there[2] = {};
#pragma unroll
    for (int i = 0; i < 64; ++i)
        if (top + descent_row(i) < tile.height && left + descent_column(i) < tile.width)
            there[i / 32] |= 1u << (31 - i % 32);
    for (int c = 0; c < item.channels; ++c) {
        __syncthreads();
        stage_fours<D>(item, tile, c, size, fours);
        __syncthreads();
        u32 planes[2][8] = {};
        if (top < D::HEIGHT) descend<D>(at, bands, size * size - rank, there, planes);
        i64 stride = (i64)item.width * item.channels;
        u8* dst = global<u8>(item.dst) + (tile.y + top) * stride + (tile.x + left) * item.channels + c;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            to_bytes(planes[half]);
#pragma unroll
            for (int i = 0; i < 32; ++i)
                if (there[half] >> (31 - i) & 1)
                    dst[descent_row(i) * stride + descent_column(32 * half + i) * item.channels] =
                        byte_of(planes[half][(31 - i) / 4], (31 - i) % 4);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
descent_17(const Item* items, const u32* starts, int n)
{
    typedef Descent<2, 128> D;
    __shared__ u32 fours[D::WORDS];
    int block;
    Item item = owner(items, starts, n, block);
    descend_tile<D>(item, block, fours);
}

extern "C" __global__ void __launch_bounds__(256, 2)
descent_33(const Item* items, const u32* starts, int n)
{
    typedef Descent<3, 128> D;
    __shared__ u32 fours[D::WORDS];
    int block;
    Item item = owner(items, starts, n, block);
    descend_tile<D>(item, block, fours);
}

extern "C" __global__ void __launch_bounds__(256, 2)
descent_65(const Item* items, const u32* starts, int n)
{
    typedef Descent<5, 128> D;
    __shared__ u32 fours[D::WORDS];
    int block;
    Item item = owner(items, starts, n, block);
    descend_tile<D>(item, block, fours);
}

extern "C" __global__ void __launch_bounds__(256, 2)
descent_101(const Item* items, const u32* starts, int n)
{
    typedef Descent<8, 64> D;
    __shared__ u32 fours[D::WORDS];
    int block;
    Item item = owner(items, starts, n, block);
    descend_tile<D>(item, block, fours);
}
