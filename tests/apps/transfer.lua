-- A sysbench script: money moves between accounts of one table, each movement in a transaction that also records it.
--
--     sysbench transfer.lua --accounts=N prepare | run
--
-- The sum of all balances stays what it was, 1000 for each account; a reader who sees another sum sees half of a
-- transaction. Accounts are locked in ascending order, also by readers, so that transactions wait for each other but do
-- not dead-lock. (A reader without locks sees another sum now and then, under glibc, too: MariaDB 10.11, 32 threads.)

sysbench.cmdline.options = { accounts = { "accounts", 20 } }

local OPENING = 1000

function prepare()
   local connection = sysbench.sql.driver():connect()
   connection:query("CREATE TABLE account(id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB")
   connection:query("CREATE TABLE movement(id BIGINT AUTO_INCREMENT PRIMARY KEY, amount INT NOT NULL) ENGINE=InnoDB")
   for id = 1, sysbench.opt.accounts do
      connection:query(string.format("INSERT INTO account VALUES (%d, %d)", id, OPENING))
   end
end

function thread_init()
   connection = sysbench.sql.driver():connect()
end

function event()
   local from = sysbench.rand.uniform(1, sysbench.opt.accounts - 1)
   local to = sysbench.rand.uniform(from + 1, sysbench.opt.accounts)
   local amount = sysbench.rand.uniform(0, 20) - 10
   local move = "UPDATE account SET balance = balance + %d WHERE id = %d"
   connection:query("BEGIN")
   connection:query(string.format(move, -amount, from))
   connection:query(string.format(move, amount, to))
   connection:query(string.format("INSERT INTO movement(amount) VALUES (%d)", amount))
   connection:query("COMMIT")
   local sum = tonumber(connection:query_row("SELECT SUM(balance) FROM account LOCK IN SHARE MODE"))
   if sum ~= OPENING * sysbench.opt.accounts then
      error(string.format("the balances add up to %d", sum))
   end
end

function thread_done()
   connection:disconnect()
end
