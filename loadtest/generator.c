/* Sends one stream of requests, as generator.py does, at a third of its cost.
 *
 * It speaks as stream.py says. One thread on epoll. Latency counts from the scheduled
 * arrival.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { UNANSWERED = 0, RESET = -1, CONNECT_FAILED = -2, WRONG = -3, OK = 200 };
enum { EVENTS_MAX = 64, OUTCOMES_MAX = 64, REASON_MAX = 48, FIRST_BYTES = 4096 };

typedef struct {
    const char *wire, *answer_end;
    size_t wire_size, end_size;
} Request;

typedef struct Connection {
    int fd;
    bool connecting, waiting;
    int64_t number, address, scheduled, sent;
    const Request *request;
    size_t written, received, capacity;
    char *buffer;
    struct Connection *next_idle;
} Connection;

typedef struct {
    int64_t *items;
    size_t count, capacity;
} Column;

static int64_t address_count, request_count, connections_max, opened;
static int64_t start_ns, send_ns, drain_ns, arrival_count;
static struct sockaddr_in *addresses;
static Request *requests;
static const int64_t *arrivals;
static bool closed_loop;
static int poller;
static int64_t open_now, open_max, unended;
static Connection **idle;      /* per address, a stack: the warm ones first */
static int64_t *queue, queue_head, queue_tail;
static Connection **everyone;  /* for the end; never shrinks */
static size_t everyone_count, everyone_capacity;
static Column scheduled_column, sent_column, ended_column, outcome_column;
static struct { int status; char reason[REASON_MAX]; } outcomes[OUTCOMES_MAX];
static int outcome_count;

static void begin(Connection *c, int64_t number, int64_t scheduled);
static Connection *open_connection(int64_t address, int64_t number);

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *grown(void *memory, size_t size) {
    memory = realloc(memory, size);
    if (!memory) die("generator: realloc");
    return memory;
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC) - start_ns; }

static void append(Column *column, int64_t value) {
    if (column->count == column->capacity) {
        column->capacity = column->capacity ? 2 * column->capacity : 65536;
        column->items = grown(column->items, column->capacity * sizeof value);
    }
    column->items[column->count++] = value;
}

static int outcome_of(int status, const char *reason, size_t length) {
    if (length >= REASON_MAX) length = REASON_MAX - 1;
    for (int i = 0; i < outcome_count; i++)
        if (outcomes[i].status == status && !memcmp(outcomes[i].reason, reason, length)
            && !outcomes[i].reason[length])
            return i;
    if (outcome_count == OUTCOMES_MAX) return OUTCOMES_MAX - 1;
    outcomes[outcome_count].status = status;
    memcpy(outcomes[outcome_count].reason, reason, length);
    return outcome_count++;
}

static void record(int64_t scheduled, int64_t sent, int64_t ended, int outcome) {
    append(&scheduled_column, scheduled);
    append(&sent_column, sent);
    append(&ended_column, ended);
    append(&outcome_column, outcome);
}

static void end(Connection *c, int outcome) {
    c->waiting = false;
    unended--;
    record(c->scheduled, c->sent, now_ns(), outcome);
}

static void watch(Connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event)) die("generator: epoll_ctl");
}

/* An open loop's connection is free. */
static void take_next(Connection *c) {
    if (queue_head < queue_tail) {
        int64_t number = queue[queue_head++];
        begin(c, number, arrivals[number]);
    } else {
        c->next_idle = idle[c->address];
        idle[c->address] = c;
    }
}

/* Close a connection; whoever counted on it gets another one. */
static void replace(Connection *c) {
    for (Connection **at = &idle[c->address]; *at; at = &(*at)->next_idle)
        if (*at == c) {
            *at = c->next_idle;
            break;
        }
    close(c->fd);
    c->fd = -1;
    free(c->buffer);
    c->buffer = NULL;
    open_now--;
    int64_t now = now_ns();
    /* Nobody listens: asking again would only spin. */
    if (c->connecting && closed_loop) return;
    if (closed_loop && now < send_ns)
        begin(open_connection(c->address, c->number), c->number, now > 0 ? now : 0);
    else if (!closed_loop && queue_head < queue_tail)
        take_next(open_connection(c->address, 0));
}

static void break_off(Connection *c) {
    int status = c->connecting ? CONNECT_FAILED : RESET;
    if (c->waiting) end(c, outcome_of(status, "", 0));
    replace(c);
}

static Connection *open_connection(int64_t address, int64_t number) {
    Connection *c = grown(NULL, sizeof *c);
    memset(c, 0, sizeof *c);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("generator: socket");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->address = address;
    c->number = number;
    c->connecting = true;
    c->buffer = grown(NULL, c->capacity = FIRST_BYTES);
    if (everyone_count == everyone_capacity) {
        everyone_capacity = everyone_capacity ? 2 * everyone_capacity : 256;
        everyone = grown(everyone, everyone_capacity * sizeof *everyone);
    }
    everyone[everyone_count++] = c;
    if (++open_now > open_max) open_max = open_now;
    /* EINPROGRESS, or an error that polling reports. */
    (void)connect(c->fd, (struct sockaddr *)&addresses[address], sizeof *addresses);
    watch(c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
    return c;
}

/* False: the connection broke. */
static bool write_some(Connection *c) {
    const Request *r = c->request;
    ssize_t n = send(c->fd, r->wire + c->written, r->wire_size - c->written,
                     MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        break_off(c);
        return false;
    }
    if (n > 0) c->written += n;
    return true;
}

static void begin(Connection *c, int64_t number, int64_t scheduled) {
    if (closed_loop) unended++;
    c->request = &requests[number % request_count];
    c->scheduled = scheduled;
    c->sent = now_ns();
    c->waiting = true;
    c->written = c->received = 0;
    if (c->connecting) return;
    if (write_some(c) && c->written < c->request->wire_size)
        watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
}

/* The value of a header in a head that ends with a NUL, or NULL. */
static const char *header(const char *head, const char *name) {
    const char *found = strcasestr(head, name);
    if (!found) return NULL;
    found += strlen(name);
    return found + strspn(found, " \t");
}

typedef enum { PARTIAL, COMPLETE, CLOSING } Answer;

static Answer read_answer(Connection *c, int *outcome) {
    char *data = c->buffer;
    char *end_of_head = memmem(data, c->received, "\r\n\r\n", 4);
    if (!end_of_head) return PARTIAL;
    *end_of_head = 0;
    const char *length = header(data, "\r\ncontent-length:");
    const char *coding = header(data, "\r\ntransfer-encoding:");
    const char *connection = header(data, "\r\nconnection:");
    size_t head = end_of_head - data + 4;
    bool complete = true;
    if (length)
        complete = c->received - head >= strtoull(length, NULL, 10);
    else if (coding && !strncasecmp(coding, "chunked", 7))
        complete = c->received >= 7
                   && !memcmp(data + c->received - 7, "\r\n0\r\n\r\n", 7);
    if (complete) {
        int status = atoi(data + 9);
        const Request *r = c->request;
        const char *reason = status == OK ? NULL : header(data, "\r\nheadrace-reason:");
        if (status == OK && (c->received < r->end_size
            || memcmp(data + c->received - r->end_size, r->answer_end, r->end_size)))
            status = WRONG;
        *outcome = outcome_of(status, reason ? reason : "",
                              reason ? strcspn(reason, "\r") : 0);
    }
    *end_of_head = '\r';
    if (!complete) return PARTIAL;
    return connection && !strncasecmp(connection, "close", 5) ? CLOSING : COMPLETE;
}

/* True: answered, and the connection can take another request. */
static bool advance(Connection *c, uint32_t events) {
    if (events & EPOLLOUT) {
        if (c->connecting) {
            int error = 0;
            socklen_t size = sizeof error;
            getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
            if (error) {
                break_off(c);
                return false;
            }
            c->connecting = false;
        }
        if (c->waiting && c->written < c->request->wire_size && !write_some(c))
            return false;
        if (!c->waiting || c->written == c->request->wire_size)
            watch(c, EPOLL_CTL_MOD, EPOLLIN);
    }
    if (!(events & ~EPOLLOUT)) return false;
    if (c->received == c->capacity)
        c->buffer = grown(c->buffer, c->capacity *= 2);
    ssize_t n = recv(c->fd, c->buffer + c->received, c->capacity - c->received, 0);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
        break_off(c);
        return false;
    }
    c->received += n;
    int outcome = 0;
    if (!c->waiting) return false;
    Answer answer = read_answer(c, &outcome);
    if (answer == PARTIAL) return false;
    end(c, outcome);
    if (answer == CLOSING) replace(c);
    return answer == COMPLETE;
}

static void arrive(int64_t number) {
    int64_t address = number % address_count;
    unended++;
    if (idle[address]) {
        Connection *c = idle[address];
        idle[address] = c->next_idle;
        begin(c, number, arrivals[number]);
    } else if (open_now < connections_max) {
        begin(open_connection(address, number), number, arrivals[number]);
    } else {
        queue[queue_tail++] = number;
    }
}

static void run_closed_loop(void) {
    struct epoll_event events[EVENTS_MAX];
    for (int64_t i = 0; i < connections_max; i++) {
        Connection *c = everyone[i];
        if (c->fd >= 0) begin(c, c->number, 0);
    }
    while (now_ns() < send_ns || (unended && now_ns() < send_ns + drain_ns)) {
        int n = epoll_wait(poller, events, EVENTS_MAX, 50);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (c->fd < 0 || !advance(c, events[i].events)) continue;
            int64_t now = now_ns();
            if (now < send_ns) begin(c, c->number, now);
        }
    }
}

/* epoll_wait counts in milliseconds, arrivals come closer. */
static int wait_ns(struct epoll_event *events, int64_t left) {
    if (left < 0) left = 0;
    struct pollfd poll = {.fd = poller, .events = POLLIN};
    struct timespec timeout = {left / 1000000000, left % 1000000000};
    if (left) ppoll(&poll, 1, &timeout, NULL);
    return epoll_wait(poller, events, EVENTS_MAX, 0);
}

static void run_open_loop(void) {
    struct epoll_event events[EVENTS_MAX];
    int64_t next = 0;
    int64_t last = (arrival_count ? arrivals[arrival_count - 1] : 0) + drain_ns;
    for (;;) {
        int64_t now = now_ns();
        while (next < arrival_count && arrivals[next] <= now) {
            arrive(next++);
            now = now_ns();
        }
        if (now >= last || (next == arrival_count && !unended)) return;
        int n = wait_ns(events, (next < arrival_count ? arrivals[next] : last) - now);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (c->fd >= 0 && advance(c, events[i].events)) take_next(c);
        }
    }
}

static void give_up(void) {
    for (size_t i = 0; i < everyone_count; i++)
        if (everyone[i]->waiting) end(everyone[i], outcome_of(UNANSWERED, "", 0));
    while (queue_head < queue_tail)
        record(arrivals[queue[queue_head++]], -1, -1,
               outcome_of(UNANSWERED, "not_sent", 8));
}

static void read_exactly(char *into, size_t size) {
    while (size) {
        ssize_t n = read(0, into, size);
        if (n <= 0) die("generator: read");
        into += n;
        size -= n;
    }
}

static int64_t read_number(void) {
    int64_t number;
    read_exactly((char *)&number, sizeof number);
    return number;
}

static int64_t take(char **at) {
    int64_t value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return value;
}

static void decode(char *at) {
    address_count = take(&at);
    request_count = take(&at);
    connections_max = take(&at);
    opened = take(&at);
    send_ns = take(&at);
    drain_ns = take(&at);
    arrival_count = take(&at);
    closed_loop = arrival_count < 0;
    addresses = grown(NULL, address_count * sizeof *addresses);
    for (int64_t i = 0; i < address_count; i++) {
        memset(&addresses[i], 0, sizeof *addresses);
        addresses[i].sin_family = AF_INET;
        addresses[i].sin_addr.s_addr = htonl(take(&at));
        addresses[i].sin_port = htons(take(&at));
    }
    requests = grown(NULL, request_count * sizeof *requests);
    for (int64_t i = 0; i < request_count; i++) {
        Request *r = &requests[i];
        r->wire_size = take(&at);
        r->end_size = take(&at);
        r->wire = at;
        r->answer_end = at += r->wire_size;
        at += r->end_size;
    }
    if (!closed_loop) {
        int64_t *copy = grown(NULL, (arrival_count + 1) * sizeof *copy);
        memcpy(copy, at, arrival_count * sizeof *copy);
        arrivals = copy;
        queue = grown(NULL, (arrival_count + 1) * sizeof *queue);
    }
}

static void write_column(const Column *column) {
    fwrite(column->items, sizeof(int64_t), column->count, stdout);
}

static void write_records(int64_t cpu_ns) {
    int64_t head[] = {outcome_column.count, open_max, cpu_ns};
    fwrite(head, sizeof head, 1, stdout);
    write_column(&scheduled_column);
    write_column(&sent_column);
    write_column(&ended_column);
    write_column(&outcome_column);
    for (int i = 0; i < outcome_count; i++)
        printf("%d %s\n", outcomes[i].status, outcomes[i].reason);
    if (fflush(stdout)) die("generator: write");
}

int main(void) {
    size_t size = read_number();
    char *stream = grown(NULL, size);
    read_exactly(stream, size);
    decode(stream);
    poller = epoll_create1(EPOLL_CLOEXEC);
    idle = grown(NULL, address_count * sizeof *idle);
    memset(idle, 0, address_count * sizeof *idle);
    for (int64_t i = 0; i < (closed_loop ? connections_max : opened); i++) {
        Connection *c = open_connection(i % address_count, i);
        if (!closed_loop) take_next(c);
    }
    if (write(1, "ready\n", 6) != 6) die("generator: write");
    start_ns = read_number();
    struct timespec start = {start_ns / 1000000000, start_ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL);
    int64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (closed_loop) run_closed_loop();
    else run_open_loop();
    give_up();
    write_records(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns);
    return 0;
}
