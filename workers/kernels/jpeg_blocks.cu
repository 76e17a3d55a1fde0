// Tell whether the entropy-coded data of baseline JPEGs hold exactly their blocks. Decode engines
// do not tell: they stop where data are missing, and show pixels of an earlier image there.
//
// Nothing but decoding all codes shows where a block ends. One block of threads decodes one file.
// Each thread takes a piece of the data, and first assumes that its piece begins with a code of a
// first block. It then stands in the middle of something else, but codes have various lengths, and
// after some of them it meets the true sequence, as Huffman codes synchronise themselves. So each
// thread repeats its piece from the place where the thread before it has ended, until no place
// changes any more; the ends are then those of one decoder that began at the first byte, because
// the first thread did (Weißenberger and Schmidt, 2018, "Massively parallel Huffman decoding on
// GPUs", https://doi.org/10.1145/3225058.3225076). Of 181 photos half need four rounds, nine of
// ten need twelve, and none more than 29; large flat areas need more. A file that needs more rounds
// than SYNC_BYTES and SYNC_ROUNDS allow counts as damaged, and the CPU decides.
//
//     piece      0         |1         |2         |3
//     first      [----->   [----->    [----->    [----->      three places are guessed
//     then       [-----)   )-----)    )-----)    )-----)      each begins where the last one ended
//
// A file is whole if no code is unknown, no block has more than 64 coefficients, the number of
// blocks is that of the image, and less than a byte is left behind the last block.
#include "kernels/headers/scan.cuh"

// A file of a batch: `FILE` of workers/engines/cuda/jpeg_blocks.py. It lies at `address`, often in
// memory of the host, which is slow to read, and this kernel copies it to `offset` of its memory.
struct JpegFile {
    u64 address, size, offset, whole;
};

// What a check needs of the header of a file.
struct JpegScan {
    u32 tables[4];  // where the tables DC 0, DC 1, AC 0 and AC 1 begin, or 0
    u32 start;      // where the entropy-coded data begin
    int blocks;     // of the image
    int per_unit;   // blocks of a minimum coded unit, at most 10
    u32 selectors;  // two bits for each block of a unit: its DC table, then its AC table
};

const int SOF0 = 0xC0, DHT = 0xC4, SOS = 0xDA;  // markers of segments
const int JPEG_THREADS = 512;                   // of the block that decodes a file
const int CODE_BITS = 11;                       // bits that one look into a table decodes
const int LEAST_PIECE = 64;                     // bytes of a piece
const int SYNC_ROUNDS = 8;                      // rounds that any file may take
const int SYNC_BYTES = 1 << 16;  // bytes that one thread may decode if these are more rounds
const int VECTORS = 8;           // vectors that a thread copies at a time

// A step of a decoder: the bits of codes with their values, and the coefficients that these are
// (<< 8). It is added to a state: the next bit, below 64, and the next coefficient (<< 8).
const u32 END = 0x80;                  // a flag of a step: its last code ends the block
const u32 NO_STEP = 0x7F00;            // more coefficients than any block has
const u32 LAST_STATE = 64 << 8 | 255;  // the largest state without too many coefficients

struct HuffmanCodes {
    u16 steps[1 << CODE_BITS];  // all whole codes in the next bits, up to the end of a block
    u16 ends[17], symbol[17];   // of each length: 16 bits behind its codes, and symbol of code 0
    u8 symbols[256];
};

// A place between two codes: bit, block of the unit, and the next coefficient.
__device__ inline u64 place_of(u32 bit, int block, int next)
{
    return (u64)bit << 16 | block << 8 | next;
}

// Return the step of the code at the beginning of 16 bits, which has at most `longest` bits, or 0.
__device__ inline u32 step_of(const HuffmanCodes& codes, u32 bits, bool ac, int longest)
{
    int length = 1;
#pragma unroll
    for (int shorter = 1; shorter <= 16; shorter++) length += bits >= codes.ends[shorter];
    if (length > longest) return 0;
    u32 symbol = codes.symbols[(bits >> (16 - length)) + codes.symbol[length] & 255];
    return length + (symbol & 15) | ((symbol >> 4) + 1) << 8 | (ac && !symbol ? END : 0);
}

__device__ inline u32 big_endian(const u8* bytes) { return bytes[0] << 8 | bytes[1]; }

// Read the header of a file that models/codec/jpeg.py has accepted: a baseline JPEG with a single
// scan, whose first component has the finest sampling.
__device__ inline JpegScan find_scan(const u8* file, u32 size)
{
    JpegScan scan = {{0, 0, 0, 0}, size, 0, 0, 0};
    u32 samplings = 0;  // the blocks of each component in a unit, four bits each
    for (u32 at = 2; at + 4 < size;) {
        u32 marker = file[at + 1], body = at + 4;
        at += 2 + big_endian(file + at + 2);
        if (marker == DHT) {
            for (u32 table = body; table + 17 <= at;) {
                u32 name = file[table++], symbols = 0;
                scan.tables[(name >> 3 | name & 1) & 3] = table;
                for (int length = 0; length < 16; length++) symbols += file[table + length];
                table += 16 + symbols;
            }
        } else if (marker == SOF0) {
            int components = file[body + 5], first = file[body + 7];
            int wide = components == 1 ? 8 : 8 * (first >> 4);
            int high = components == 1 ? 8 : 8 * (first & 15);
            for (int i = 0; i < components; i++) {
                u32 sampling = file[body + 7 + 3 * i];
                int blocks = components == 1 ? 1 : (sampling >> 4) * (sampling & 15);
                samplings |= blocks << 4 * i;
                scan.per_unit += blocks;
            }
            int height = big_endian(file + body + 1), width = big_endian(file + body + 3);
            scan.blocks = (width + wide - 1) / wide * ((height + high - 1) / high) * scan.per_unit;
        } else if (marker == SOS) {
            int block = 0;
            for (int i = 0; i < file[body]; i++) {
                u32 names = file[body + 2 + 2 * i];
                for (u32 n = samplings >> 4 * i & 15; n > 0; n--, block++)
                    scan.selectors |= (names >> 4 & 1 | (names & 1) << 1) << 2 * block;
            }
            scan.start = at;
            break;
        }
    }
    return scan;
}

// Make the four tables of a file; every thread of the block has to call it.
__device__ inline void make_codes(HuffmanCodes* codes, const JpegScan& scan, const u8* file)
{
    if (threadIdx.x < 4) {
        HuffmanCodes& own = codes[threadIdx.x];
        u32 code = 0, offset = 0, table = scan.tables[threadIdx.x];
        for (int length = 1; length <= 16; length++) {
            u32 count = table ? file[table + length - 1] : 0;
            own.ends[length] = code + count << (16 - length), own.symbol[length] = offset - code;
            offset += count;
            code = (code + count) << 1;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 4 * 256; i += JPEG_THREADS) {
        HuffmanCodes& own = codes[i / 256];
        if (scan.tables[i / 256] && scan.tables[i / 256] + 16 + i % 256 < scan.start)
            own.symbols[i % 256] = file[scan.tables[i / 256] + 16 + i % 256];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 4 << CODE_BITS; i += JPEG_THREADS) {
        bool ac = i >> CODE_BITS >= 2;
        HuffmanCodes& own = codes[i >> CODE_BITS];
        u32 bits = (i & ((1 << CODE_BITS) - 1)) << (16 - CODE_BITS), steps = 0;
        for (int left = CODE_BITS;;) {
            u32 step = step_of(own, bits, ac, min(left, 16));
            left -= step & 31;
            if (!step || steps && left < 0) break;
            steps += step;
            bits = bits << (step & 31) & 0xFFFF;
            if (!ac || step & END || left <= 0) break;
        }
        own.steps[i & ((1 << CODE_BITS) - 1)] = steps ? steps : NO_STEP;
    }
    __syncthreads();
}

// Move the bytes `start` to `last` of a file to its beginning, without the 0 that an encoder writes
// behind each 0xFF, as words whose highest byte is the first; return their number.
__device__ inline u32 move_data(u8* file, u32 start, u32 last, u32 (*totals)[JPEG_THREADS / 32])
{
    u32 size = 0;
    for (u32 first = start / 8 * 8, turn = 0; first < last; first += 8 * JPEG_THREADS, turn ^= 1) {
        u32 at = first + 8 * threadIdx.x, kept = 0;
        u64 bytes = at < last ? *(const u64*)(file + at) : 0;
        u32 before = at < last ? file[at - 1] : 0;
        for (int k = 0; k < 8; k++) {
            u32 byte = bytes >> 8 * k & 255;
            bool stuffed = byte == 0 && before == 0xFF && at + k > start;
            kept |= (at + k >= start && at + k < last && !stuffed) << k;
            before = byte;
        }
        u32 upto = scan_warp((u32)__popc(kept));
        if (threadIdx.x % 32 == 31) totals[turn][threadIdx.x / 32] = upto;
        __syncthreads();  // all have read their bytes
        u32 to = size + before_thread((u32)__popc(kept), upto, totals[turn]);
        for (int k = 0; k < 8; k++)
            if (kept >> k & 1) file[to++ ^ 3] = bytes >> 8 * k;
        for (int warp = 0; warp < JPEG_THREADS / 32; warp++) size += totals[turn][warp];
    }
    __syncthreads();
    return size;
}

// `whole` of each file becomes 1 or 0. The files begin and are copied in whole vectors of 16 bytes.
extern "C" __global__ void __launch_bounds__(JPEG_THREADS)
    count_jpeg_blocks(JpegFile* files, u8* memory)
{
    __shared__ JpegFile given;
    __shared__ HuffmanCodes codes[4];
    __shared__ u64 ends[JPEG_THREADS];
    __shared__ u32 totals[2][JPEG_THREADS / 32];
    __shared__ int total;
    __shared__ JpegScan scan;
    if (threadIdx.x == 0) given = files[blockIdx.x];
    __syncthreads();
    u8* file = memory + given.offset;
    u32 vectors = (given.size + 15) / 16;
    for (u32 first = threadIdx.x; first < vectors; first += VECTORS * JPEG_THREADS) {
        uint4 copied[VECTORS];  // all are on their way from the host at the same time
#pragma unroll
        for (u32 k = 0, i = first; k < VECTORS; k++, i += JPEG_THREADS)
            if (i < vectors) copied[k] = ((const uint4*)given.address)[i];
#pragma unroll
        for (u32 k = 0, i = first; k < VECTORS; k++, i += JPEG_THREADS)
            if (i < vectors) ((uint4*)file)[i] = copied[k];
    }
    __syncthreads();
    u32 last = given.size - 2;  // where the EOI begins
    if (threadIdx.x == 0) scan = find_scan(file, last);
    __syncthreads();
    make_codes(codes, scan, file);
    u32 size = move_data(file, scan.start, last, totals);
    u32 piece = max(LEAST_PIECE, (int)((size + JPEG_THREADS - 1) / JPEG_THREADS));
    u32 byte = min(threadIdx.x * piece, size), end = 8 * min(byte + piece, size), limit = 8 * size;
    u64 start = place_of(8 * byte, 0, 0);
    u32 selectors = scan.selectors;
    int blocks = 0, per_unit = scan.per_unit;
    bool wrong = false, again = true, changed = true;
    int rounds = min(JPEG_THREADS, max(SYNC_ROUNDS, (int)(SYNC_BYTES / piece)));
    for (int round = 0; round < rounds && changed; round++) {
        if (again) {
            u32 at = start >> 16, state = (start & 255) << 8 | at % 32, step = 0;
            const u32* data = (const u32*)file + at / 32;
            u32 high = data[0], low = data[1], later = data[2];
            int left = end - at / 32 * 32, block = start >> 8 & 255;
            u32 selector = selectors >> 2 * block;
            blocks = 0;
            wrong = false;
            while ((int)(state & 63) < left) {
                if (state & 32) {
                    high = low, low = later, later = data[3];
                    data++;
                    left -= 32;
                    state ^= 32;
                }
                const HuffmanCodes& own =
                    codes[state >> 8 ? 2 + (selector >> 1 & 1) : selector & 1];
                u32 bits = __funnelshift_l(low, high, state);
                step = own.steps[bits >> (32 - CODE_BITS)];
                if (state + step > LAST_STATE) {  // a longer code, or too many for the block
                    step = step_of(own, bits >> 16, state >> 8, 16);
                    if (!step && limit - (end - left + (state & 31)) < 16) step = 1 << 8 | 31;
                    wrong |= !step || state + step > LAST_STATE;
                    if (!step) state &= 31, step = 1;
                }
                state += step;
                if (state >= 64 << 8 || state & END) {
                    state &= 63;
                    blocks++;
                    if (++block == per_unit) block = 0;
                    selector = selectors >> 2 * block;
                }
            }
            at = end - left + (state & 63);
            u32 next = state >> 8;
            if (at >= limit) {  // the data have ended, before the end of the last code if beyond
                wrong |= at > limit ? next != 1 || at - limit + 8 <= (step & 31) : next != 0;
                at = limit, next = block = 0;  // as pieces behind the data begin
            }
            ends[threadIdx.x] = place_of(at, block, next);
        }
        __syncthreads();
        u64 before = threadIdx.x ? ends[threadIdx.x - 1] : start;
        again = before != start;
        start = before;
        changed = __syncthreads_or(again);
    }
    if (threadIdx.x == 0) total = 0;
    wrong = __syncthreads_or(wrong);
    atomicAdd(&total, blocks);
    __syncthreads();
    if (threadIdx.x == 0) files[blockIdx.x].whole = !wrong && !changed && total == scan.blocks;
}
