// Medians of small squares, plane by plane: 3 by exchanges of pairs of samples, 5 and 7 by counting
// bits of 32 samples at once. The engine launches the kernel of an image's size.

constexpr int EXCHANGE_WIDTH = 128, EXCHANGE_HEIGHT = 32, EXCHANGE_ROWS = 4;

__device__ __forceinline__ int median_size(const Item& item) { return *global<const int>(item.data); }

// Low, middle and high of a sample and both its neighbours; two samples a word, in the high byte
// of each half: what is in the low bytes cannot change their order.
struct Sorted {
    u32 low, middle, high;
};

__device__ __forceinline__ u32 middle_of(u32 a, u32 b, u32 c)
{
    return a + b + c - __vminu2(__vminu2(a, b), c) - __vmaxu2(__vmaxu2(a, b), c);
}

__device__ __forceinline__ Sorted sorted(u32 a, u32 b, u32 c)
{
    u32 low = __vminu2(__vminu2(a, b), c), high = __vmaxu2(__vmaxu2(a, b), c);
    return {low, a + b + c - low - high, high};  // of each half: what is neither
}

__device__ __forceinline__ u32 median9(const Sorted& a, const Sorted& b, const Sorted& c)
{
    return middle_of(__vmaxu2(b.low, __vmaxu2(a.low, c.low)), middle_of(b.middle, a.middle, c.middle),
                     __vminu2(b.high, __vminu2(a.high, c.high)));
}

// The row of `words` at w, sorted by threes: odd samples, then even ones.
__device__ __forceinline__ void sort_row(const u32* w, int shift, Sorted* row)
{
    u32 left = __funnelshift_r(w[-1], w[0], 32 - shift), right = __funnelshift_rc(w[0], w[1], shift);
    row[0] = sorted(left, w[0], right);
    row[1] = sorted(left << 8, w[0] << 8, right << 8);
}

// The samples of a tile with a row more on top and bottom and 16 bytes more on either side. Of an
// inner tile with aligned rows all loads are on their way before the first is waited for.
template <int C>
__device__ __forceinline__ void stage_around(const Item& item, const Tile& tile, u32* words)
{
    constexpr int PITCH = EXCHANGE_WIDTH / 4 * C + 8, VECTORS = PITCH / 4;
    constexpr int EACH = ((EXCHANGE_HEIGHT + 2) * VECTORS + THREADS - 1) / THREADS;
    int across = (tile.width * C + 3) / 4, end = (tile.height + 2) * VECTORS;
    int first = tile.x * C - 16, bytes = item.width * C;
    if (bytes % 16 == 0 && first >= 0 && first + 4 * PITCH <= bytes) {
        u32 four[EACH][4];
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            int i = threadIdx.x + k * THREADS;
            if (i < end) load16(source_row(item, tile.y + i / VECTORS - 1) + first + i % VECTORS * 16, four[k]);
        }
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            int i = threadIdx.x + k * THREADS;
            if (i < end) store16((u8*)(words + 4 * i), four[k]);
        }
        return;
    }
    for (int i = threadIdx.x; i < end; i += THREADS) {
        int row = i / VECTORS, at = i % VECTORS * 4;
        if (at > across + 4) continue;
        u32 four[4];
        samples16(source_row(item, tile.y + row - 1), bytes, C, first + 4 * at, four);
        store16((u8*)(words + row * PITCH + at), four);
    }
}

template <int C>
__device__ __forceinline__ void exchange_tile(const Item& item, const Tile& tile, u32* words, u32* out)
{
    constexpr int ACROSS = EXCHANGE_WIDTH / 4 * C, PITCH = ACROSS + 8;
    int across = (tile.width * C + 3) / 4;
    stage_around<C>(item, tile, words);
    __syncthreads();
    for (int i = threadIdx.x; i < EXCHANGE_HEIGHT / EXCHANGE_ROWS * ACROSS; i += THREADS) {
        int at = i % ACROSS, first = i / ACROSS * EXCHANGE_ROWS;
        if (at >= across || first >= tile.height) continue;
        Sorted row[EXCHANGE_ROWS + 2][2];
#pragma unroll
        for (int k = 0; k < EXCHANGE_ROWS + 2; ++k)
            sort_row(words + (first + k) * PITCH + at + 4, 8 * C, row[k]);
#pragma unroll
        for (int k = 0; k < EXCHANGE_ROWS; ++k) {
            u32 odd = median9(row[k][0], row[k + 1][0], row[k + 2][0]);
            u32 even = median9(row[k][1], row[k + 1][1], row[k + 2][1]);
            out[(first + k) * ACROSS + at] = __byte_perm(even, odd, 0x7351);
        }
    }
    __syncthreads();
    store_tile<EXCHANGE_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
median_exchange(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[(EXCHANGE_HEIGHT + 2) * (EXCHANGE_WIDTH + 8) / 4];
    __shared__ uint4 out[EXCHANGE_HEIGHT * EXCHANGE_WIDTH / 4 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, EXCHANGE_WIDTH, EXCHANGE_HEIGHT);
    if (item.channels == 1) exchange_tile<1>(item, tile, (u32*)words, (u32*)out);
    else if (item.channels == 3) exchange_tile<3>(item, tile, (u32*)words, (u32*)out);
    else exchange_tile<4>(item, tile, (u32*)words, (u32*)out);
}

constexpr int BITS_WIDTH = 128, BITS_HEIGHT = 63;

// Exchange the bits outside `mask` of a with those `shift` places on of b.
__device__ __forceinline__ void swap_bits(u32& a, u32& b, int shift, u32 mask)
{
    u32 low = (a & mask) | ((b & mask) << shift);
    b = (a >> shift & mask) | (b & ~mask);
    a = low;
}

// Of eight words, bit k of word j with bit j of word k, in each of their four bytes.
__device__ __forceinline__ void transpose_bits(u32* w)
{
    for (int j = 0; j < 4; ++j) swap_bits(w[j], w[j + 4], 4, 0x0F0F0F0F);
    for (int j = 0; j < 8; ++j)
        if (!(j & 2)) swap_bits(w[j], w[j + 2], 2, 0x33333333);
    for (int j = 0; j < 8; j += 2) swap_bits(w[j], w[j + 1], 1, 0x55555555);
}

// A 4 × 4 matrix of bytes, transposed.
__device__ __forceinline__ void transpose_bytes(u32& a, u32& b, u32& c, u32& d)
{
    u32 words[4] = {a, b, c, d}, made[4];
    deinterleave<4>(words, made);
    a = made[0], b = made[1], c = made[2], d = made[3];
}

// 32 bytes in order to 8 planes of 32 bits in order; `to_bytes` is the way back.
__device__ __forceinline__ void to_planes(u32* w)
{
    transpose_bytes(w[0], w[2], w[4], w[6]);
    transpose_bytes(w[1], w[3], w[5], w[7]);
    u32 x[8] = {w[0], w[2], w[4], w[6], w[1], w[3], w[5], w[7]};
    transpose_bits(x);
    for (int j = 0; j < 8; ++j) w[j] = x[j];
}

__device__ __forceinline__ void to_bytes(u32* w)
{
    transpose_bits(w);
    transpose_bytes(w[0], w[1], w[2], w[3]);
    transpose_bytes(w[4], w[5], w[6], w[7]);
    u32 x[8] = {w[0], w[4], w[1], w[5], w[2], w[6], w[3], w[7]};
    for (int j = 0; j < 8; ++j) w[j] = x[j];
}

// Whether N bits and PAD make 2**LEVELS or more, for 32 samples; they never make twice as much.
template <int LEVELS, int PAD, int N> __device__ __forceinline__ u32 reaches(const u32* bits)
{
    if constexpr (LEVELS == 0) {
        u32 any = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) any |= bits[i];
        return any;
    } else {
        constexpr int ONE = PAD & 1, CARRIES = (N + ONE) / 2, ALL = N + ONE + CARRIES + 2;
        u32 queue[ALL], carry[CARRIES];
#pragma unroll
        for (int i = 0; i < ALL; ++i) queue[i] = i < N ? bits[i] : i < N + ONE ? ~0u : 0;
#pragma unroll
        for (int i = 0; i < CARRIES; ++i) {
            constexpr int BACK = N + ONE;
            u32 a = queue[3 * i], b = queue[3 * i + 1];
            u32 c = 3 * i + 2 < BACK + i ? queue[3 * i + 2] : 0;
            queue[BACK + i] = a ^ b ^ c;
            carry[i] = (a & b) | (c & (a | b));
        }
        return reaches<LEVELS - 1, PAD / 2, CARRIES>(carry);
    }
}

// The medians of 32 samples from planes [row][plane][word], bit by bit from the highest. A sample
// that left the median's prefix stays at the bit it left by: above or below for good.
template <int SIZE>
__device__ __forceinline__ void median_planes(const u32* at, int words, int channels, u32* made)
{
    constexpr int N = SIZE * SIZE, R = SIZE / 2, HALF = (N + 1) / 2;
    constexpr int LEVELS = HALF <= 16 ? 4 : 5;
    u32 gone[N], bits[N];
#pragma unroll
    for (int i = 0; i < N; ++i) gone[i] = bits[i] = 0;
#pragma unroll 1
    for (int plane = 7; plane >= 0; --plane) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const u32* w = at + (i / SIZE * 8 + plane) * words;
            int shift = (i % SIZE - R) * channels;
            u32 here = w[0];
            if (i % SIZE < R) here = __funnelshift_r(w[-1], w[0], 32 + shift);
            if (i % SIZE > R) here = __funnelshift_r(w[0], w[1], shift);
            bits[i] = (gone[i] & bits[i]) | (~gone[i] & here);
        }
        u32 median = reaches<LEVELS, (1 << LEVELS) - HALF, N>(bits);
#pragma unroll
        for (int i = 0; i < N; ++i) gone[i] |= bits[i] ^ median;
#pragma unroll
        for (int k = 7; k > 0; --k) made[k] = made[k - 1];
        made[0] = median;
    }
}

// A band of `rows` rows from `top` on, as planes with `radius` rows more above and below.
__device__ __forceinline__ void stage_planes(
    const Item& item, const Tile& tile, int top, int rows, int radius, u32* planes)
{
    int c = item.channels, bytes = item.width * c, words = BITS_WIDTH / 32 * c + 2;
    for (int i = threadIdx.x; i < (rows + 2 * radius) * words; i += THREADS) {
        int row = i / words, word = i % words, at = tile.x * c + 32 * (word - 1);
        if (at > (tile.x + tile.width + radius) * c) continue;
        const u8* line = source_row(item, top + row - radius);
        u32 w[8];
        for (int j = 0; j < 8; j += 4) samples16(line, bytes, c, at + 4 * j, w + j);
        to_planes(w);
        for (int j = 0; j < 8; ++j) planes[(row * 8 + j) * words + word] = w[j];
    }
}

template <int SIZE>
__device__ __forceinline__ void median_band(
    const Item& item, const Tile& tile, int rows, const u32* planes, u32* out)
{
    int c = item.channels, words = BITS_WIDTH / 32 * c;
    int row = threadIdx.x / words, word = threadIdx.x % words;
    if (row >= rows || 32 * word >= tile.width * c) return;
    u32 made[8] = {};
    median_planes<SIZE>(planes + row * 8 * (words + 2) + word + 1, words + 2, c, made);
    to_bytes(made);
    for (int i = 0; i < 2; ++i) store16((u8*)out + (row * words + word) * 32 + 16 * i, made + 4 * i);
}

extern "C" __global__ void __launch_bounds__(256, 2)
median_bits(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[3360];  // of 69 rows of 6 words, 27 of 14 or 22 of 18, and to spare
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    int size = median_size(item), c = item.channels;
    Tile tile = tile_of(item, block, BITS_WIDTH, BITS_HEIGHT);
    int most = c == 1 ? 63 : c == 3 ? 21 : 16;
    for (int first = 0; first < tile.height; first += most) {
        Tile band = {tile.x, tile.y + first, tile.width, min(most, tile.height - first)};
        stage_planes(item, band, band.y, band.height, size / 2, planes);
        __syncthreads();
        if (size == 5) median_band<5>(item, band, band.height, planes, (u32*)out);
        else median_band<7>(item, band, band.height, planes, (u32*)out);
        __syncthreads();
        store_tile_of<BITS_WIDTH>(item, band, (const u8*)out);
    }
}
