// sqlite-kills [COMMITTED]: SQLite with a rollback journal, in the directory in which it is started,
// until somebody makes `stop` there. It begins with a database in which so many rows are committed, and
// those that it did not come to say. Whatever carries out its calls on files may be killed at any time:
// a transaction that fails is begun again with the database opened anew. What was committed must be
// there, and whole.

#include <sqlite3.c>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUE = 3000, SAID_EVERY = 5, TRIES = 600 };

static sqlite3 *database;
static long reopened;

static void fail(const char *what) {
    printf("%s: %s\n", what, database == NULL ? "no database" : sqlite3_errmsg(database));
    exit(1);
}

static void fill(char *value, long number) {
    for (int i = 0; i < VALUE; i++)
        value[i] = (char)(number * 31 + i * 7 + i / 251);
}

// One number that a query answers, or -1.
static long ask(const char *query, long number) {
    sqlite3_stmt *statement;
    long answer = -1;
    if (sqlite3_prepare_v2(database, query, -1, &statement, NULL) != SQLITE_OK)
        return -1;
    sqlite3_bind_int64(statement, 1, number);
    if (sqlite3_step(statement) == SQLITE_ROW)
        answer = (long)sqlite3_column_int64(statement, 0);
    return sqlite3_finalize(statement) == SQLITE_OK ? answer : -1;
}

static int run(const char *words) {
    return sqlite3_exec(database, words, NULL, NULL, NULL);
}

// Opens the database; what `committed` rows hold is there.
static void open_again(long committed) {
    for (int tries = 0; tries < TRIES; tries++) {
        if (database != NULL)
            sqlite3_close(database);
        if (sqlite3_open("database", &database) == SQLITE_OK && run("PRAGMA synchronous = FULL") == SQLITE_OK
            && run("PRAGMA journal_mode = DELETE") == SQLITE_OK
            && run("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, value BLOB)") == SQLITE_OK) {
            long there = ask("SELECT count(*) FROM rows WHERE number <= ?", committed);
            if (there == committed)
                return;
            if (there >= 0) {
                printf("%ld rows of %ld are there\n", there, committed);
                exit(1);
            }
        }
        usleep(50000);
    }
    fail("open");
}

static int insert(long number) {
    char value[VALUE];
    sqlite3_stmt *statement;
    fill(value, number);
    if (run("BEGIN IMMEDIATE") != SQLITE_OK
        || sqlite3_prepare_v2(database, "INSERT INTO rows VALUES (?, ?)", -1, &statement, NULL) != SQLITE_OK)
        return 0;
    sqlite3_bind_int64(statement, 1, number);
    sqlite3_bind_blob(statement, 2, value, VALUE, SQLITE_STATIC);
    int done = sqlite3_step(statement) == SQLITE_DONE;
    sqlite3_finalize(statement);
    return done && run("COMMIT") == SQLITE_OK;
}

int main(int argc, char **argv) {
    open_again(argc > 1 ? atol(argv[1]) : 0);
    long committed = ask("SELECT count(*) FROM rows WHERE number > ?", 0);
    if (committed < 0)
        fail("count");
    while (access("stop", F_OK) != 0) {
        long next = committed + 1;
        if (!insert(next)) {
            reopened++;
            open_again(committed);
            // The journal may have been gone when the error came: then it was committed.
            if (ask("SELECT count(*) FROM rows WHERE number = ?", next) != 1)
                continue;
        }
        committed = next;
        if (committed % SAID_EVERY == 0) {
            printf("committed %ld\n", committed);
            fflush(stdout);
        }
    }
    open_again(committed);
    sqlite3_stmt *statement;
    char value[VALUE];
    long whole = 0;
    if (sqlite3_prepare_v2(database, "SELECT number, value FROM rows ORDER BY number", -1, &statement, NULL) != SQLITE_OK)
        fail("select");
    while (sqlite3_step(statement) == SQLITE_ROW) {
        fill(value, (long)sqlite3_column_int64(statement, 0));
        whole += sqlite3_column_bytes(statement, 1) == VALUE && memcmp(sqlite3_column_blob(statement, 1), value, VALUE) == 0;
    }
    sqlite3_finalize(statement);
    if (sqlite3_prepare_v2(database, "PRAGMA integrity_check", -1, &statement, NULL) != SQLITE_OK
        || sqlite3_step(statement) != SQLITE_ROW)
        fail("integrity_check");
    printf("integrity: %s\n", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    printf("rows: %s\n", whole == committed ? "whole" : "damaged");
    printf("reopened: %ld\n", reopened);
    sqlite3_close(database);
    return 0;
}
