// Erosion and dilation by small rectangles in one pass: columns from the image, then rows in shared
// memory, where words hold a sample of four rows, so that neighbours are words.

constexpr int SQUARE_WIDTH = 64, SQUARE_HEIGHT = 64, SQUARE_LONGEST = 25, SQUARE_GROUPS = SQUARE_HEIGHT / 4;
constexpr int SQUARE_WORDS = SQUARE_HEIGHT * (SQUARE_WIDTH + SQUARE_LONGEST) + 4 * SQUARE_GROUPS;

// The least of words, byte by byte; two samples a word in the high bytes of its halves, as in median.cu.
struct Least {
    u32 odd = ~0u, even = ~0u;

    __device__ __forceinline__ void with(u32 word)
    {
        odd = __vminu2(odd, word), even = __vminu2(even, word << 8);
    }

    __device__ __forceinline__ u32 word() const { return __byte_perm(even, odd, 0x7351); }
};

// The least of `length` words from each of n places on, n <= length: all of these windows share a
// core; what is before it and what follows are running minima (van Herk, Gil, Werman).
template <class Load>
__device__ __forceinline__ void least_windows(int n, int length, const Load& load, u32* to, int step)
{
    Least least;
#pragma unroll Load::AHEAD
    for (int j = n - 1; j < length; ++j) least.with(load(j));
    to[(n - 1) * step] = least.word();
#pragma unroll Load::AHEAD
    for (int j = n - 2; j >= 0; --j) {
        least.with(load(j));
        to[j * step] = least.word();
    }
    least = Least();
#pragma unroll Load::AHEAD
    for (int j = 1; j < n; ++j) {
        least.with(load(length - 1 + j));
        Least both = least;
        both.with(to[j * step]);
        to[j * step] = both.word();
    }
}

// Words of a column of the image, from row y on: whole ones of memory.
struct InnerColumn {
    static constexpr int AHEAD = 8;  // loads at once
    const u8* from;
    int y, last;
    u32 stride, flip;

    __device__ __forceinline__ u32 operator()(int j) const
    {
        return flip ^ *(const u32*)(from + (u32)min(max(y + j, 0), last) * stride);
    }
};

// The same anywhere.
struct AnyColumn {
    static constexpr int AHEAD = 1;
    const Item& item;
    int at, y;
    u32 flip;

    __device__ __forceinline__ u32 operator()(int j) const
    {
        return flip ^ samples4(source_row(item, y + j), item.width * item.channels, item.channels, at);
    }
};

struct SharedRow {
    static constexpr int AHEAD = 4;
    const u32* from;
    int step;

    __device__ __forceinline__ u32 operator()(int j) const { return from[j * step]; }
};

// How many windows to make at once of `total`: at most `length`, in strips of about the same size.
__device__ __forceinline__ int strip_of(int total, int length)
{
    int strips = (total + length - 1) / length;
    return (total + strips - 1) / strips;
}

// Apart, as `replicated4` is.
static __device__ __noinline__ void least_of_any(const AnyColumn& column, int n, int length, u32* to, int step)
{
    least_windows(n, length, column, to, step);
}

// Down the columns of `across` words from sample `first` on, to lines of so many words.
__device__ __forceinline__ void least_columns(
    const Item& item, const Step& step, const Tile& tile, int first, int across, u32* lines)
{
    int n = strip_of(tile.height, step.length), strips = (tile.height + n - 1) / n;
    int bytes = item.width * item.channels;
    u32 flip = step.dilates ? ~0u : 0;
    for (int i = threadIdx.x; i < across * strips; i += THREADS) {
        int word = i % across, y = i / across * n, at = first + 4 * word, top = tile.y + y - step.before;
        u32* to = lines + y * across + word;
        if (bytes % 4 || at < 0 || at + 4 > bytes) {
            least_of_any({item, at, top, flip}, min(n, tile.height - y), step.length, to, across);
            continue;
        }
        InnerColumn column = {global<const u8>(item.src) + at, top, item.height - 1, (u32)bytes, flip};
        least_windows(min(n, tile.height - y), step.length, column, to, across);
    }
}

// Words of one row of four, to words of four rows; a line of `pitch` for each four.
__device__ __forceinline__ void stand_up(const u32* lines, int across, int rows, int pitch, u32* standing)
{
    for (int i = threadIdx.x; i < (rows + 3) / 4 * across; i += THREADS) {
        int group = i / across, word = i % across;
        const u32* from = lines + 4 * group * across + word;
        u32 four[4] = {from[0], from[across], from[2 * across], from[3 * across]};
        transpose_bytes(four[0], four[1], four[2], four[3]);
        store16((u8*)(standing + group * pitch + 4 * word), four);
    }
}

// The way back, to rows of `across` words.
__device__ __forceinline__ void lie_down(const u32* standing, int across, int rows, int pitch, u32 flip, u32* lines)
{
    for (int i = threadIdx.x; i < (rows + 3) / 4 * across; i += THREADS) {
        int group = i / across, word = i % across;
        u32 four[4];
        load16((const u8*)(standing + group * pitch + 4 * word), four);
        transpose_bytes(four[0], four[1], four[2], four[3]);
        for (int k = 0; k < 4; ++k) lines[(4 * group + k) * across + word] = flip ^ four[k];
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
morphology_squares(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 one[SQUARE_WORDS / 4 + 1], other[SQUARE_WORDS / 4 + 1];
    int block;
    Item item = owner(items, starts, n, block), moved;
    Step step = step_of(item, moved);
    Tile tile = tile_of(item, block, SQUARE_WIDTH, SQUARE_HEIGHT);
    u32 *lines = (u32*)one, *standing = (u32*)other;
    int c = item.channels, left = (tile.x - step.before) * c, first = left & ~3;
    int across = (left - first + (tile.width + step.length - 1) * c + 3) / 4;
    least_columns(moved, step, tile, first, across, lines);
    __syncthreads();
    int pitch = 4 * (across | 1);  // so that groups of rows lie in different banks
    stand_up(lines, across, tile.height, pitch, standing);
    __syncthreads();
    int made = SQUARE_WIDTH * c + 4, strip = strip_of(tile.width, step.length);
    int units = (tile.width + strip - 1) / strip * c;
    for (int i = threadIdx.x; i < SQUARE_GROUPS * units; i += THREADS) {
        int group = i % SQUARE_GROUPS, unit = i / SQUARE_GROUPS;
        int x = unit / c * strip, sample = x * c + unit % c;
        if (4 * group >= tile.height) continue;
        SharedRow row = {standing + group * pitch + left - first + sample, c};
        least_windows(min(strip, tile.width - x), step.length, row, lines + group * made + sample, c);
    }
    __syncthreads();
    lie_down(lines, SQUARE_WIDTH / 4 * c, tile.height, made, step.dilates ? ~0u : 0, standing);
    __syncthreads();
    store_tile_of<SQUARE_WIDTH>(moved, tile, (const u8*)standing);
}
